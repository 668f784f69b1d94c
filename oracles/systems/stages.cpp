#include "oracles/systems/stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <set>

#include "oracles/reasons.h"
#include "oracles/systems/dendritic_stages.h"
#include "oracles/systems/gated_attention_stages.h"
#include "oracles/systems/gated_delta_net_stages.h"
#include "oracles/systems/input_format.h"
#include "oracles/systems/latent_stages.h"
#include "oracles/systems/mamba_stages.h"
#include "oracles/systems/mixture_stages.h"
#include "oracles/systems/retnet_stages.h"
#include "oracles/systems/stage_points.h"
#include "reference/linear.h"

namespace samestate {
namespace {

/// One sequence of a layer: its inputs, and the tensors that were handed out.
struct Layer {
  const LayerStages& known;
  const Tensors<double>& inputs;
  const Tensors<double>& written;
  const Contract& contract;

  [[nodiscard]] const TensorSpec* tap(const std::string& name) const {
    const auto found = std::ranges::find(known.taps, name, &TensorSpec::name);
    return found == known.taps.end() ? nullptr : &*found;
  }
  [[nodiscard]] const Matrix<double>* wrote(const std::string& name) const {
    const auto found = written.find(name);
    return found == written.end() ? nullptr : &found->second;
  }
  /// The tensor that a stage reads; null if it is not known. An output in another format than the kernel
  /// keeps is not what its next stage read.
  [[nodiscard]] const Matrix<double>* read(const std::string& name) const {
    if (const auto given = inputs.find(name); given != inputs.end()) return &given->second;
    const Matrix<double>* x = wrote(name);
    const bool kept = tap(name) != nullptr || contract.output == contract.input;
    return x != nullptr && kept && x->allFinite() ? x : nullptr;
  }
  /// The layer's contract for a stage.
  [[nodiscard]] Contract contract_of(const Stage& stage) const {
    Contract own = contract;
    if (const TensorSpec* spec = tap(stage.writes.front().of)) own.output = input_format(*spec, contract);
    return own;
  }
};

/// A tensor of the layer in the form that the stage has.
Matrix<double> as_seen(const Stage& stage, const StageTensor& part, const Matrix<double>& x,
                       const std::vector<TensorSpec>& specs) {
  const auto spec = std::ranges::find(specs, part.name, &TensorSpec::name);
  const Index columns = part.columns > 0 ? part.columns : x.cols();
  if (spec == specs.end() || part.first + columns > x.cols() || x.rows() * columns != spec->size()) {
    throw Error(fmt::format("stage {}: columns {}..{} of {}, {} x {}, are not its tensor {}", stage.name,
                            part.first, part.first + columns, part.of, x.rows(), x.cols(), part.name));
  }
  const Matrix<double> taken = x.middleCols(part.first, columns);
  return Eigen::Map<const Matrix<double>>(taken.data(), spec->rows(), spec->columns());
}

/// Changes "output y, ..." to the name that it has in the layer.
void name_as_in_layer(const Stage& stage, std::string& reason) {
  for (const StageTensor& x : stage.writes) {
    const std::string own = "output " + x.name;
    if (!reason.starts_with(own) || (reason.size() > own.size() && std::isalnum(reason[own.size()]) != 0))
      continue;
    reason = "output " + x.of + reason.substr(own.size());
    return;
  }
}

struct LinearMap {
  static Signature signature(const Call& call) {
    const Index in = call.at("In");
    const Index out = call.at("Out");
    return {{{"x", Axis::tokens, {call.tokens, in}, Content::activation},
             {"weight", Axis::whole, {out, in}, Content::weight}},
            {{"y", Axis::tokens, {call.tokens, out}}}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call&, const Tensors<Scalar>& inputs) {
    return {{"y", linear(get(inputs, "x"), get(inputs, "weight"), points::linear_map["y"])}};
  }
};

}  // namespace

StagesOf stages_of(std::string_view system) {
  struct Row {
    std::string_view system;
    StagesOf stages;
  };
  static constexpr Row kRows[] = {{"gated_delta_net", gated_delta_net_stages},
                                  {"dendritic_attention", dendritic_stages},
                                  {"mamba_mixer", mamba_mixer_stages},
                                  {"mamba2_mixer", mamba2_mixer_stages},
                                  {"multi_scale_retention", multi_scale_retention_stages},
                                  {"latent_cache", latent_cache_stages},
                                  {"latent_attention", latent_attention_stages},
                                  {"gated_attention", gated_attention_stages},
                                  {"mixture_of_experts", mixture_of_experts_stages},
                                  {"qwen3_next_moe", qwen3_next_moe_stages}};
  const auto row = std::ranges::find(kRows, system, &Row::system);
  return row == std::end(kRows) ? nullptr : row->stages;
}

Stage stage_of(std::string_view name, std::string_view system, const Call& layer, Sizes sizes,
               std::vector<StageTensor> reads, std::vector<StageTensor> writes) {
  const Operator* op = find_operator(system);
  if (op == nullptr) throw Error(fmt::format("stage {}: no system {}", name, system));
  return stage_of(name, *op, layer, std::move(sizes), std::move(reads), std::move(writes));
}

Stage stage_of(std::string_view name, const Operator& op, const Call& layer, Sizes sizes,
               std::vector<StageTensor> reads, std::vector<StageTensor> writes) {
  Call call{std::string(op.forms.front().name), layer.tokens, 0, std::move(sizes)};
  return {name, &op, std::move(call), std::move(reads), std::move(writes)};
}

Stage stage_of(std::string_view name, const Operator& op, const Call& layer, std::vector<StageTensor> reads,
               std::vector<StageTensor> writes) {
  Call call = layer;
  if (op.form(call.form) == nullptr) call.form = op.forms.front().name;
  return {name, &op, std::move(call), std::move(reads), std::move(writes)};
}

TensorSpec of_tokens(const Call& call, std::string name, Extents of_token, Content content) {
  of_token.insert(of_token.begin(), call.tokens);
  return {std::move(name), Axis::tokens, std::move(of_token), content};
}

const Operator& linear_map() {
  static const Operator row = stage_operator<LinearMap>("linear_map", "y = W x");
  return row;
}

StagesJudged judge_stages(const Operator& layer, const Call& call, const Tensors<double>& inputs,
                          const Tensors<double>& written, const std::vector<Index>& cuts,
                          const Contract& contract, std::uint64_t seed, const JudgePolicy& policy,
                          const GatesAsked& asked) {
  const LayerStages known = stages_of(layer.name)(call);
  const Layer of{known, inputs, written, contract};
  StagesJudged out;
  std::set<std::string, std::less<>> made, read;
  for (const Stage& stage : known.stages) {
    const auto is_read = [&](const StageTensor& x) { return of.read(x.of) != nullptr; };
    const auto is_written = [&](const StageTensor& x) { return of.wrote(x.of) != nullptr; };
    const auto is_judged = [&](const StageTensor& x) { return made.contains(x.of); };
    if (!std::ranges::all_of(stage.reads, is_read) || !std::ranges::all_of(stage.writes, is_written) ||
        std::ranges::all_of(stage.writes, is_judged))
      continue;
    const Signature signature = stage.op->signature(stage.call);
    Tensors<double> reads, actual;
    for (const StageTensor& x : stage.reads) {
      reads.emplace(x.name, as_seen(stage, x, *of.read(x.of), signature.inputs));
      if (!inputs.contains(x.of)) read.insert(x.of);
    }
    for (const StageTensor& x : stage.writes) {
      actual.emplace(x.name, as_seen(stage, x, *of.wrote(x.of), signature.outputs));
      made.insert(x.of);
    }
    const Contract own = of.contract_of(stage);
    const OperatorOracle oracle = operator_oracle(*stage.op, stage.call, reads, cuts, own);
    Judgement judgement =
        judge_sequence({*stage.op, stage.call, reads, cuts, own, oracle}, actual, seed, policy, asked);
    name_as_in_layer(stage, judgement.reason);
    out.stages.push_back({stage.name, std::move(judgement)});
  }
  const auto is_made = [&](const std::string& name) { return made.contains(name); };
  out.complete = std::ranges::all_of(read, is_made) &&
                 std::ranges::all_of(layer.signature(call).outputs, is_made, &TensorSpec::name);
  return out;
}

void add_stages(Judgement& whole, const StagesJudged& judged) {
  const StageJudgement* wrong = nullptr;
  const StageJudgement* worst = nullptr;
  bool all_pass = judged.complete;
  for (const StageJudgement& one : judged.stages) {
    const Judgement& j = one.judgement;
    whole.stages.push_back({std::string(one.stage), j.verdict, j.ratio, j.gate});
    if (wrong == nullptr && j.verdict == Verdict::fail) wrong = &one;
    if (worst == nullptr || j.ratio > worst->judgement.ratio) worst = &one;
    all_pass = all_pass && j.verdict == Verdict::pass;
  }
  const auto take = [&](const StageJudgement& one, std::string reason) {
    const Judgement& j = one.judgement;
    whole.verdict = j.verdict;
    whole.stage = one.stage;
    take_numbers(whole, j);
    whole.reason = std::move(reason);
  };
  if (wrong != nullptr) {
    const bool beside = whole.verdict == Verdict::fail;
    take(*wrong,
         fmt::format("stage {}: {}{}", wrong->stage, wrong->judgement.reason, beside ? "" : kOnlyInStage));
  } else if (whole.verdict == Verdict::fail && !judged.stages.empty()) {
    whole.reason += kInNoStage;
  } else if (whole.verdict == Verdict::vacuous && whole.gate != kZeroGate && all_pass && worst != nullptr) {
    take(*worst, fmt::format("by its stages; the whole: {}", whole.reason));
  }
}

}  // namespace samestate

#include "oracles/systems/stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "oracles/contracts.h"
#include "oracles/numbers.h"
#include "oracles/reasons.h"
#include "oracles/rounding.h"
#include "oracles/systems/input_format.h"
#include "oracles/systems/scalars.h"
#include "tests/oracles/systems/drawn_call.h"

namespace samestate {
namespace {

const GatesAsked kAll{[](Verdict) { return true; }, [](Verdict) { return true; }};

/// Taps that a kernel does not have because it fuses the steps on both sides of them: none, or those that a
/// coarser stage spans.
using Fused = std::set<std::string>;

/// A call of a layer with drawn data, and what a kernel of it hands out: stage after stage, each from what came before.
struct DrawnLayer {
  const Operator& op;
  const Contract& contract;
  Call call;
  Tensors<double> inputs;
  Fused fused;

  DrawnLayer(const std::string& name, const std::string& form, const char* contract_name, Index tokens,
             std::uint64_t seed, const std::map<std::string, Index>& sizes = {}, Fused without = {})
      : op(*find_operator(name)), contract(contract_named(contract_name)), fused(std::move(without)) {
    call = call_of(op, form, tokens, sizes);
    inputs = drawn_inputs(op, call, contract, seed, true);
  }

  [[nodiscard]] const TensorSpec& spec(const std::string& name, const LayerStages& stages) const {
    const auto tap = std::ranges::find(stages.taps, name, &TensorSpec::name);
    if (tap != stages.taps.end()) return *tap;
    static thread_local Signature signature;
    signature = op.signature(call);
    return *std::ranges::find(signature.outputs, name, &TensorSpec::name);
  }

  /// Returns true if the stage reads or writes a tap that does not exist.
  [[nodiscard]] bool meets_fused(const Stage& stage) const {
    const auto is_fused = [&](const StageTensor& x) { return fused.contains(x.of); };
    return std::ranges::any_of(stage.reads, is_fused) || std::ranges::any_of(stage.writes, is_fused);
  }

  /// Evaluates the stages with `evaluate`(stage, what it reads); `change` may put another stage's output in
  /// its place.
  template <class Evaluate>
  [[nodiscard]] Tensors<double> chain(Evaluate&& evaluate) const {
    const LayerStages stages = stages_of(op.name)(call);
    Tensors<double> made;
    for (const Stage& stage : stages.stages) {
      const bool done =
          std::ranges::all_of(stage.writes, [&](const StageTensor& x) { return made.contains(x.of); });
      if (done || meets_fused(stage)) continue;
      Tensors<double> reads;
      const Signature signature = stage.op->signature(stage.call);
      for (const StageTensor& x : stage.reads) {
        const Matrix<double>& from = inputs.contains(x.of) ? get(inputs, x.of) : get(made, x.of);
        const Matrix<double> taken = from.middleCols(x.first, x.columns > 0 ? x.columns : from.cols());
        const TensorSpec& as = *std::ranges::find(signature.inputs, x.name, &TensorSpec::name);
        reads.emplace(x.name, Eigen::Map<const Matrix<double>>(taken.data(), as.rows(), as.columns()));
      }
      const Tensors<double> out = evaluate(stage, reads);
      for (const StageTensor& x : stage.writes) {
        const TensorSpec& as = spec(x.of, stages);
        EXPECT_EQ(get(out, x.name).size(), as.size()) << stage.name << " " << x.of;
        made[x.of] = Eigen::Map<const Matrix<double>>(get(out, x.name).data(), as.rows(), as.columns());
      }
    }
    return made;
  }

  [[nodiscard]] Tensors<double> exact() const {
    return chain(
        [](const Stage& stage, const Tensors<double>& reads) { return stage.op->exact(stage.call, reads); });
  }

  /// Evaluates with the roundings of the contract and with sums in an order of its own, on the inputs of a
  /// stage as `change` changes them.
  [[nodiscard]] Tensors<double> kernel(
      int n, const std::function<void(const Stage&, Tensors<double>&)>& change = nullptr) const {
    const LayerStages stages = stages_of(op.name)(call);
    return chain([&](const Stage& stage, Tensors<double> reads) {
      if (change) change(stage, reads);
      SampledModel model = SampledModel::jitter(contract, 91, n);
      model.associates_otherwise = false;  // token by token those are the points of a chunk
      const SamplingScope scope(model);
      Tensors<double> out;
      for (const StageTensor& x : stage.writes) {
        const auto tap = std::ranges::find(stages.taps, x.of, &TensorSpec::name);
        const Format kept = tap == stages.taps.end() ? contract.output : input_format(*tap, contract);
        const Tensors<Stochastic> values = evaluate(stage.op->stochastic, *stage.op, stage.call, reads, {});
        out.emplace(x.name, get(values, x.name).unaryExpr([&](const Stochastic& e) {
          return round_to(round_to(e.value(), Format::fp32), kept);
        }));
      }
      return out;
    });
  }

  [[nodiscard]] StagesJudged judge(const Tensors<double>& written) const {
    return judge_stages(op, call, inputs, written, {}, contract, 7, kGatePolicy, kAll);
  }
};

std::string failing(const StagesJudged& judged) {
  std::string out;
  for (const StageJudgement& one : judged.stages) {
    if (one.judgement.verdict == Verdict::fail) out += (out.empty() ? "" : ", ") + std::string(one.stage);
  }
  return out;
}

struct LayerCase {
  std::string name, form;
  Fused fused;
};

/// Every form of every layer, of a kernel that hands out all, and of those that coarser stages are there for.
std::vector<LayerCase> layers() {
  static const std::multimap<std::string, Fused> kFused = {
      {"gated_delta_net", {"gated"}},
      {"gated_delta_net", {"q", "k", "g", "beta"}},
      {"gated_delta_net", {"convolved", "q", "k", "g", "beta"}},
      {"dendritic_attention", {"q_convolved", "k_convolved", "g", "beta"}},
      {"gated_attention", {"attended"}},
      {"qwen3_next_moe", {"shared_gate_logit"}}};
  std::vector<LayerCase> out;
  for (const Operator& op : operators()) {
    if (stages_of(op.name) == nullptr) continue;
    for (const OperatorForm& form : op.forms) {
      const std::string name(op.name), of(form.name);
      out.push_back({name, of, {}});
      for (auto [at, end] = kFused.equal_range(name); at != end; ++at) out.push_back({name, of, at->second});
    }
  }
  return out;
}

TEST(Stages, EachIsThatOfSomeKernel) {
  std::map<std::string, std::set<std::string>> known, judged;
  for (const auto& [name, form, fused] : layers()) {
    const DrawnLayer drawn(name, form, "fp32", 5, 3, {}, fused);
    for (const Stage& stage : stages_of(name)(drawn.call).stages) known[name].emplace(stage.name);
    for (const StageJudgement& one : drawn.judge(drawn.kernel(0)).stages) judged[name].emplace(one.stage);
  }
  EXPECT_EQ(known, judged);
}

TEST(Stages, OfAllLayersTogetherAreTheLayer) {
  EXPECT_GE(layers().size(), 4U);
  for (const auto& [name, form, fused] : layers()) {
    for (const std::map<std::string, Index>& sizes : {std::map<std::string, Index>{}, {{"W", 1}}}) {
      const DrawnLayer drawn(name, form, "fp32", 11, 3, sizes, fused);
      const Tensors<double> stages = drawn.exact();
      for (const auto& [output, whole] : drawn.op.exact(drawn.call, drawn.inputs)) {
        ASSERT_TRUE(stages.contains(output)) << name << " " << output;
        const double apart = whole.size() == 0 ? 0.0 : (whole - get(stages, output)).cwiseAbs().maxCoeff();
        EXPECT_LE(apart, 1e-13 * (1.0 + (whole.size() == 0 ? 0.0 : whole.cwiseAbs().maxCoeff())))
            << name << " " << form << " " << output;
      }
    }
  }
}

TEST(Stages, OfRightKernelsPassAndAreComplete) {
  for (const char* contract : {"bf16", "fp32", "fp16"}) {
    for (const auto& [name, form, fused] : layers()) {
      for (int n = 0; n < 3; ++n) {
        const DrawnLayer drawn(name, form, contract, 13, 5, {}, fused);
        const StagesJudged judged = drawn.judge(drawn.kernel(n));
        EXPECT_EQ(failing(judged), "") << name << " " << form << " " << contract << " " << n;
        EXPECT_TRUE(judged.complete) << name;
        EXPECT_EQ(std::ranges::count(judged.stages, Verdict::pass,
                                     [](const StageJudgement& one) { return one.judgement.verdict; }),
                  std::ssize(judged.stages));
      }
    }
  }
}

/// Returns true if the outputs of the stage are also written by the stages before it.
bool finer_is_there(const DrawnLayer& drawn, const LayerStages& stages, const Stage& stage) {
  std::set<std::string> written;
  for (const Stage& before : stages.stages) {
    if (&before == &stage) break;
    if (drawn.meets_fused(before)) continue;
    for (const StageTensor& x : before.writes) written.insert(x.of);
  }
  return std::ranges::all_of(stage.writes, [&](const StageTensor& x) { return written.contains(x.of); });
}

// Each tap by turns: the stage that wrote it is blamed, and no other, since all that follow are judged from it.
TEST(Stages, AFaultShowsInItsStageAlone) {
  for (const auto& [name, form, fused] : layers()) {
    const DrawnLayer drawn(name, form, "bf16", 13, 5, {}, fused);
    const LayerStages stages = stages_of(drawn.op.name)(drawn.call);
    for (const Stage& wrong : stages.stages) {
      if (drawn.meets_fused(wrong) || finer_is_there(drawn, stages, wrong)) continue;
      const Tensors<double> written = drawn.chain([&](const Stage& stage, const Tensors<double>& reads) {
        const SamplingScope scope(SampledModel::jitter(drawn.contract, 91, 0));
        Tensors<double> out;
        for (const auto& [output, x] : evaluate(stage.op->stochastic, *stage.op, stage.call, reads, {})) {
          const double factor = stage.name == wrong.name ? 1.02 : 1.0;
          const auto write = std::ranges::find(stage.writes, output, &StageTensor::name);
          const auto tap = std::ranges::find(stages.taps, write->of, &TensorSpec::name);
          const Format kept =
              tap == stages.taps.end() ? drawn.contract.output : input_format(*tap, drawn.contract);
          out.emplace(output, x.unaryExpr([&](const Stochastic& e) {
            return round_to(round_to(factor * e.value(), Format::fp32), kept);
          }));
        }
        return out;
      });
      const std::string found = failing(drawn.judge(written));
      EXPECT_EQ(found, wrong.name) << name << " " << form;
    }
  }
}

/// x with a bit fewer than bf16 has: what a stage computes of it is off by a rounding that no contract has.
double one_bit_fewer(double x) {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, 7)), exponent - 7);
}

// Far below 2 %: each of the layers of attention and experts, each stage by turns.
TEST(Stages, AnUndeclaredRoundingShowsInItsStageAlone) {
  for (const auto& [name, form, fused] : layers()) {
    const bool asked = name.starts_with("latent") || name == "gated_attention" || name.ends_with("moe") ||
                       name == "mixture_of_experts";
    if (!asked) continue;
    const DrawnLayer drawn(name, form, "bf16", 13, 5, {}, fused);
    const LayerStages stages = stages_of(drawn.op.name)(drawn.call);
    for (const Stage& wrong : stages.stages) {
      if (wrong.name == "selection") continue;  // numbers, which few roundings of logits change
      if (drawn.meets_fused(wrong) || finer_is_there(drawn, stages, wrong)) continue;
      const Tensors<double> written = drawn.kernel(0, [&](const Stage& stage, Tensors<double>& reads) {
        if (stage.name != wrong.name) return;
        for (auto& [tensor, x] : reads) {
          if (tensor != "experts") x = x.unaryExpr([](double e) { return one_bit_fewer(e); });
        }
      });
      EXPECT_EQ(failing(drawn.judge(written)), wrong.name) << name << " " << form;
    }
  }
}

TEST(Stages, AreJudgedWhereWhatTheyReadAndWriteIsThere) {
  const DrawnLayer drawn("gated_delta_net", "chunked", "bf16", 13, 5);
  const Tensors<double> all = drawn.kernel(0);
  const auto judged_of = [&](const std::vector<std::string>& taps) {
    Tensors<double> some;
    for (const char* output : {"y", "core", "convolution", "S"}) some.emplace(output, get(all, output));
    for (const std::string& tap : taps) some.emplace(tap, get(all, tap));
    std::string names;
    const StagesJudged judged = drawn.judge(some);
    EXPECT_FALSE(judged.complete);
    for (const StageJudgement& one : judged.stages) names += "/" + std::string(one.stage);
    return names;
  };
  EXPECT_EQ(judged_of({}), "");
  EXPECT_EQ(judged_of({"z"}), "/norm and output") << "what it reads beside z is an output";
  EXPECT_EQ(judged_of({"gated"}), "/output");
  EXPECT_EQ(judged_of({"z", "gated"}), "/norm/output");
  EXPECT_EQ(judged_of({"mixed", "convolved", "q"}), "/convolution/norm of q");
  EXPECT_EQ(judged_of({"a", "b", "g", "beta"}), "/gates");
  EXPECT_EQ(judged_of({"a", "b", "convolved"}), "/norms, gates and rule");
  EXPECT_EQ(judged_of({"a", "b", "mixed"}), "/convolution to rule");
  EXPECT_EQ(judged_of({"a", "b", "mixed", "convolved"}), "/convolution/norms, gates and rule");
}

TEST(Stages, WhatIsNoNumberFailsTheStageThatWroteIt) {
  const DrawnLayer drawn("gated_delta_net", "chunked", "bf16", 13, 5);
  Tensors<double> written = drawn.kernel(0);
  written["convolved"](3, 2) = kNaN;
  const StagesJudged judged = drawn.judge(written);
  EXPECT_EQ(failing(judged), "convolution");
  for (const StageJudgement& one : judged.stages) {
    const bool reads =
        one.stage == "rule" || one.stage.starts_with("norm of") || one.stage.starts_with("norms");
    EXPECT_FALSE(reads) << one.stage << ": those that read it are left out";
  }
}

// A kernel that keeps bf16 goes on with the rounded core, whatever it writes.
TEST(Stages, OutputsInAnotherFormatAreNotWhatWasRead) {
  const DrawnLayer wide("gated_delta_net", "chunked", "bf16+output:fp32", 13, 5);
  const StagesJudged judged = wide.judge(wide.kernel(0));
  EXPECT_EQ(failing(judged), "");
  EXPECT_FALSE(judged.complete);
  EXPECT_TRUE(
      std::ranges::any_of(judged.stages, [](const StageJudgement& one) { return one.stage == "rule"; }));
  EXPECT_TRUE(
      std::ranges::none_of(judged.stages, [](const StageJudgement& one) { return one.stage == "norm"; }));
}

StageJudgement stage(const char* name, Verdict verdict, double ratio) {
  StageJudgement one{name, {}};
  one.judgement.verdict = verdict;
  one.judgement.ratio = ratio;
  one.judgement.gate = "element";
  one.judgement.reason = "output y";
  return one;
}

TEST(AddStages, TheFirstThatFailsIsNamedWithItsNumbers) {
  Judgement whole;
  whole.verdict = Verdict::pass;
  whole.ratio = 0.25;
  add_stages(whole, {{stage("a", Verdict::pass, 0.5), stage("b", Verdict::fail, 3.0),
                      stage("c", Verdict::fail, 9.0)},
                     true});
  EXPECT_EQ(whole.verdict, Verdict::fail);
  EXPECT_EQ(whole.stage, "b");
  EXPECT_EQ(whole.ratio, 3.0);
  EXPECT_EQ(whole.reason, "stage b: output y" + std::string(kOnlyInStage));
  ASSERT_EQ(whole.stages.size(), 3U);
  EXPECT_EQ(whole.stages[2].ratio, 9.0);
}

TEST(AddStages, AVacuousWholePassesByCompleteStagesAlone) {
  Judgement vacuous;
  vacuous.verdict = Verdict::vacuous;
  vacuous.gate = "element";
  const std::vector<StageJudgement> pass{stage("a", Verdict::pass, 0.5), stage("b", Verdict::pass, 0.75)};
  Judgement whole = vacuous;
  add_stages(whole, {pass, true});
  EXPECT_EQ(whole.verdict, Verdict::pass);
  EXPECT_EQ(whole.stage, "b");
  whole = vacuous;
  add_stages(whole, {pass, false});
  EXPECT_EQ(whole.verdict, Verdict::vacuous) << "a stage is missing";
  whole = vacuous;
  whole.gate = kZeroGate;
  add_stages(whole, {pass, true});
  EXPECT_EQ(whole.verdict, Verdict::vacuous) << "nothing but zeros is expected";
  whole = vacuous;
  add_stages(whole, {{pass[0], stage("b", Verdict::vacuous, 0.0)}, true});
  EXPECT_EQ(whole.verdict, Verdict::vacuous) << "so is a stage";
}

TEST(AddStages, AWholeThatFailsBesideRightStagesSaysSo) {
  Judgement whole;
  whole.verdict = Verdict::fail;
  whole.ratio = 2.0;
  whole.reason = "output y";
  add_stages(whole, {{stage("a", Verdict::pass, 0.5)}, false});
  EXPECT_EQ(whole.verdict, Verdict::fail);
  EXPECT_EQ(whole.ratio, 2.0);
  EXPECT_TRUE(whole.stage.empty());
  EXPECT_TRUE(whole.reason.ends_with(kInNoStage)) << whole.reason;
}

}  // namespace
}  // namespace samestate

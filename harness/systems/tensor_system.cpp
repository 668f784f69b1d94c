#include "harness/systems/tensor_system.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "fixtures/run_file.h"
#include "harness/cases/counter.h"
#include "harness/cases/keys.h"
#include "harness/cases/laws.h"
#include "harness/cases/shards.h"
#include "harness/run/chosen_heads.h"
#include "harness/run/chosen_tokens.h"
#include "harness/run/judging_cost.h"
#include "harness/run/kernel_table.h"
#include "harness/run/plugin.h"
#include "harness/run/run_case.h"
#include "harness/systems/judge_tensors.h"
#include "harness/systems/model_shapes.h"
#include "harness/systems/saved_run.h"
#include "harness/systems/tensor_inputs.h"
#include "oracles/contracts.h"
#include "oracles/judge.h"
#include "oracles/limits.h"
#include "oracles/reasons.h"
#include "oracles/systems/judge_samples.h"
#include "oracles/systems/stages.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// What a kernel wrote: the outputs of its system, and the taps that the case asks for and its row hands out.
struct Written {
  std::vector<CaseTensor> outputs, taps;
};

/// Runs a kernel on the inputs of a case.
Written run_tensors(const Resolved& r, const TensorSystem& system, const std::vector<CaseTensor>& inputs,
                    const KernelChoice& kernels, const RunOptions& options, const std::vector<Index>& cuts) {
  const KernelRow& kernel = *kernels.named;
  const Call call = system.call(r.c, kernel.form);
  const Signature signature = system.row.signature(call);
  std::vector<TensorSpec> specs = signature.outputs;
  if (r.c.taps && !kernel.taps.empty()) {
    for (TensorSpec& tap : stages_of(system.name)(call).taps) {
      if (hands_out(kernel, tap.name, r.c)) specs.push_back(std::move(tap));
    }
  }
  const CallLoop loop = tensor_loop(r.c, call, inputs, specs, cuts);
  std::vector<std::vector<float>> written = run_calls(
      loop, options,
      [&](const Segment&, const KernelCall& one) { run_row(kernel, one, *r.contract, options.of); });
  Written out;
  for (std::size_t i = 0; i < written.size(); ++i) {
    (i < signature.outputs.size() ? out.outputs : out.taps)
        .push_back({specs[i], true, loop.outputs[i].shape, std::move(written[i]), r.c.lengths});
  }
  return out;
}

/// Whether the contract of that name draws roundings; plans ask millions of times.
bool keeps_sixteen_bits(const std::string& contract) {
  thread_local std::map<std::string, bool> known;
  const auto [at, fresh] = known.try_emplace(contract);
  if (fresh) at->second = has_samples(contract_named(contract));
  return at->second;
}

/// What the sizes of a case say of one of its sequences.
struct OfSizes {
  bool possible = false;
  bool by_token = false;    ///< held_by_token
  double operations = 0.0;  ///< multiplications of the reference
  double elements = 0.0, tensors = 0.0;
};

/// The call of a case in the row's first form. Of the same system again only numbers change.
Call& call_of_sizes(const TensorSystem& system, const Case& c) {
  thread_local std::map<const TensorSystem*, Call> known;
  Call& call = known[&system];
  const bool same =
      std::ranges::equal(call.parameters, c.parameters, {}, &std::pair<const std::string, Index>::first,
                         &std::pair<const std::string, Index>::first);
  if (!same) call = system.call(c, system.row.forms.front().name);
  auto from = c.parameters.begin();
  for (auto& [name, value] : call.parameters) value = (from++)->second;
  call.form = system.row.forms.front().name;
  call.tokens = c.T;
  call.chunk = c.chunk;
  return call;
}

OfSizes count_sizes(const TensorSystem& system, const Case& c, const CaseForm* asked) {
  OfSizes of;
  const Operator& row = system.row;
  Call& one = call_of_sizes(system, c);
  Signature all;
  try {
    all = row.signature(one);
  } catch (const Error&) {  // sizes that are impossible together
    return of;
  }
  of.possible = true;
  of.by_token = held_by_token(row, all);
  const auto operations = [&](const OperatorForm& form) {
    one.form = form.name;
    one.chunk = form.chunked ? c.chunk : 0;
    return static_cast<double>(row.cost(one).operations) / 2;
  };
  double of_token = 0.0;
  for (const TensorSpec& spec : all.inputs) {
    const auto size = static_cast<double>(spec.size());
    of.elements += size;
    if (spec.axis != Axis::tokens || !row.token_wise) of_token += size;
  }
  for (const TensorSpec& spec : all.outputs) of.elements += static_cast<double>(spec.size());
  of.tensors = static_cast<double>(all.inputs.size() + all.outputs.size());
  // The first form is the oracle's; the kernel's is tens of times cheaper, but a large chunk more work.
  of.operations = operations(row.forms.front());
  if (const OperatorForm* own = row.form(c.form)) of.operations = std::max(of.operations, operations(*own));
  for (const OperatorForm& native : row.forms) {
    // The calls are of the kernel's form: before the first token that comes alone, in its chunks.
    if (asked != nullptr && asked->decodes && native.chunked && c.chunk > 0)
      of.operations = std::max(of.operations, operations(native));
  }
  // Where nobody has counted them: each token meets all weights, states and rows before it; without weights the other
  // tokens' data too, unless no token meets another.
  if (of.operations <= 0) of.operations = static_cast<double>(std::max<Index>(c.T, 1)) * of_token;
  return of;
}

/// A plan asks ten million times, half of them of the sizes that it asked of shortly before. What another case has overwritten is
/// counted again: a table that grows costs more than it saves. `asked`: the form of the case.
OfSizes of_sizes(const TensorSystem& system, const Case& c, const CaseForm* asked) {
  constexpr std::size_t kKept = 1U << 12;
  struct Kept {
    std::string system, form;  ///< no system: nothing is kept
    std::vector<Index> sizes;
    OfSizes of;
  };
  thread_local std::vector<Kept> known(kKept);
  thread_local std::vector<Index> sizes;
  sizes.assign({c.T, c.chunk});
  for (const auto& [name, value] : c.parameters) sizes.push_back(value);
  std::size_t hash = std::hash<std::string_view>{}(c.form);
  for (const Index size : sizes) {
    hash = (hash ^ static_cast<std::size_t>(size)) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 32U;
  }
  Kept& kept = known[hash % kKept];
  if (kept.system != system.name || kept.form != c.form || kept.sizes != sizes) {
    kept.system.clear();
    kept.of = count_sizes(system, c, asked);
    kept.system = system.name;
    kept.form = c.form;
    kept.sizes = sizes;
  }
  return kept.of;
}

}  // namespace

bool held_by_token(const Operator& row, const Signature& signature) {
  const auto of_state = [](const TensorSpec& x) { return x.axis == Axis::state; };
  const auto of_tokens = [](const TensorSpec& x) { return x.axis == Axis::tokens; };
  const auto prefix = [](const TensorSpec& x) { return x.axis == Axis::prefix; };
  const auto other_rows = [&](const TensorSpec& x) { return x.rows() != signature.outputs.front().rows(); };
  if (std::ranges::any_of(signature.inputs, of_state) || !std::ranges::all_of(signature.outputs, of_tokens) ||
      std::ranges::any_of(signature.outputs, other_rows))
    return false;
  const bool meets_rows = std::ranges::any_of(signature.inputs, prefix);
  return row.token_wise ? !meets_rows : row.streams && meets_rows;
}

namespace {

/// `signature`: of a call of one token.
Properties properties_of(const Operator& row, const Signature& signature, bool packs) {
  const auto any = [&](auto&& wanted) { return std::ranges::any_of(signature.inputs, wanted); };
  const bool reads_earlier =
      any([](const TensorSpec& x) { return x.axis == Axis::state || x.axis == Axis::prefix; });
  Properties has;
  const auto put = [&](Property one, bool there) {
    if (there) has = has | one;
  };
  put(Property::streams, row.streams);
  put(Property::carries, row.streams && reads_earlier);
  put(Property::slots, any([](const TensorSpec& x) { return x.content == Content::slot; }));
  put(Property::token_wise, row.token_wise);
  put(Property::packs, packs);
  return has;
}

}  // namespace

TensorSystem::TensorSystem(const Operator& of) : row(of) {
  name = of.name;
  equation = of.equation;
  kernel_rows = kTensorRows;
  in_file = {"input.", "output."};
  const StagesOf stages = stages_of(name);
  Call least;
  least.form = of.forms.front().name;
  least.tokens = least.chunk = 1;
  for (const Parameter& size : of.parameters) least.parameters.emplace(size.name, size.standard);
  const Signature signature = of.signature(least);
  const std::vector<TensorSpec>& tensors = signature.inputs;
  // Where no token meets another, sequences one after another are one.
  const bool packs =
      of.streams || (!of.token_wise && std::ranges::all_of(signature.outputs, [](const TensorSpec& x) {
        return x.axis == Axis::tokens;
      }));
  keys = common_keys(stages != nullptr, packs);
  for (const Parameter& size : of.parameters) sizes.push_back({size});
  plan = {.start = "T=21 chunk=8", .law = "B=2 T=13", .seeded = 50};
  for (const ModelShape& shape : model_shapes()) {
    if (shape.system != name) continue;
    std::string part = fmt::format("B={} T={}", shape.B, shape.T);
    for (const auto& [size, value] : shape.sizes) part += fmt::format(" {}={}", size, value);
    (shape.once ? plan.limits : plan.models).push_back(std::move(part));
  }
  for (const OperatorForm& form : of.forms) forms.push_back({.name = form.name, .chunked = form.chunked});
  // Its calls are those of any form, so that the chunk is theirs.
  if (of.streams) {
    forms.push_back({.name = "decode", .decodes = true});
    // A batch that is served: a token each of more sequences than a block has threads, all else as models have it.
    plan.limits.push_back("B=257 T=1");
  }
  if (stages != nullptr) {
    for (const OperatorForm& form : of.forms) {
      least.form = form.name;
      for (const TensorSpec& tap : stages(least).taps) {
        if (std::ranges::find(taps, tap.name) == taps.end()) taps.push_back(tap.name);
      }
    }
  }
  if (packs) {
    forms.push_back({.name = "packed", .packed = true});
    plan.every = {"form=packed lengths=0,17,1,0,16,9,0", "form=packed lengths=7,0,26 unowned=3,5 repeat=1"};
    plan.shapes = {"form=packed lengths=33",
                   "form=packed lengths=1,1,1,1",
                   "form=packed lengths=0,0",
                   "form=packed lengths=16,17 unowned=130,65",
                   "form=packed lengths=16,17 unowned=1,0",
                   "form=packed lengths=16,17 unowned=0,17",
                   "layout=far form=packed lengths=17,16"};
  }
  const auto any = [&](Content content) {
    return std::ranges::count(tensors, content, &TensorSpec::content) > 0;
  };
  const bool masked = any(Content::mask), rates = any(Content::log_rate);
  const bool head_norms = std::ranges::any_of(
      tensors, [](const TensorSpec& x) { return x.content == Content::offset && is_head_norm(x.name); });
  const bool trains = any(Content::zeros) || any(Content::no_sum) || any(Content::no_count) ||
                      std::ranges::count(tensors, kStepBias, &TensorSpec::name) > 0;
  const bool counts = any(Content::no_count);
  for (const Regime& regime : tensor_regimes()) {
    if ((counts || !regime.tensors.long_context) && (masked || !regime.tensors.masked_anywhere) &&
        (rates || !regime.tensors.of_rates) && (head_norms || !regime.tensors.of_head_norms) &&
        (trains || !regime.tensors.trained))
      regimes.push_back(&regime);
  }
  properties = properties_of(of, signature, packs);
  laws = laws_on_tensors(properties);
  for (const Law* law : laws) {
    for (const std::string_view part : law->planned) {
      if (!part.empty()) plan.limits.emplace_back(part);
    }
  }
}

Call TensorSystem::call(const Case& c, std::string_view native) const {
  Call call;
  call.form = c.form == "decode" || c.form == "packed" ? std::string(native) : c.form;
  call.tokens = c.T;
  call.chunk = c.chunk;
  for (const auto& [key, value] : c.parameters) call.parameters.emplace(key, value);
  return call;
}

CallLoop tensor_loop(const Case& c, const Call& call, const std::vector<CaseTensor>& inputs,
                     const std::vector<TensorSpec>& outputs, const std::vector<Index>& cuts) {
  CallLoop loop;
  loop.settings.batch = c.B;
  for (const auto& [name, value] : call.parameters) loop.settings.parameters.emplace_back(name, value);
  for (const CaseTensor& x : inputs)
    loop.inputs.push_back(
        {x.spec.name, x.spec.axis, x.batched, x.shape, &x.data, {}, x.spec.content == Content::slot});
  for (const TensorSpec& spec : outputs) {
    loop.outputs.push_back({spec.name, spec.axis, true, output_shape(spec, c), nullptr,
                            spec.axis == Axis::state ? spec.name : std::string()});
  }
  Index begin = 0;
  for (const Index end : cuts) loop.path.push_back({end - std::exchange(begin, end), c.chunk, false});
  loop.path.push_back({c.T - begin, c.chunk, false});
  loop.given = c.cached ? c.prefill : 0;
  if (!c.lengths.empty()) loop.offsets = offsets_of(c), loop.in_place = true;
  return loop;
}

std::vector<Index> cuts_of(const Resolved& r) {
  std::vector<Index> cuts;
  if (!r.form->decodes) return cuts;
  for (Index t = std::max<Index>(r.c.prefill, 1); t < r.c.T; t += r.c.step) cuts.push_back(t);
  return cuts;
}

Signature TensorSystem::signature(const Case& c) const {
  return row.signature(call(c, row.forms.front().name));
}

double TensorSystem::work(const Case& c, const JudgePolicy& policy) const {
  const CaseForm* asked = this->form(c.form);
  if (!c.lengths.empty()) {
    Case one = c;
    one.form = row.forms.front().name;
    one.lengths.clear();
    const double sequences = static_cast<double>(sequences_of(c));
    // The work of a token grows with its sequence, up to where some of the tokens alone are held: the most that any has is the larger
    // of the longest sequence's and of the longest one's that is held whole.
    const Index longest = std::ranges::max(c.lengths);
    double of_token = 0.0;
    for (const Index tokens : {longest, std::min(longest, policy.all_tokens)}) {
      one.T = tokens;
      of_token = std::max(of_token, work(one, policy) / static_cast<double>(std::max<Index>(tokens, 1)));
    }
    return static_cast<double>(c.T) * of_token + sequences * kSequenceCost / kTensorUnit;
  }
  const OfSizes of = of_sizes(*this, c, asked);
  if (!of.possible) return std::numeric_limits<double>::infinity();
  const bool decodes = asked != nullptr && asked->decodes;
  const double calls =
      decodes ? static_cast<double>((c.T - c.prefill) / c.step) * kTensorOfCallCost * of.tensors : 0.0;
  // Of many sequences few are held to their tolerance (ChosenHeads), the others evaluated in float64.
  const double part =
      static_cast<double>(sequences_to_hold(c, policy)) / static_cast<double>(std::max<Index>(c.B, 1));
  // The last tokens attend to twice as many tokens as the average one.
  const double made =
      c.cached ? std::min(1.0, 2.0 * static_cast<double>(c.T - c.prefill) / static_cast<double>(c.T)) : 1.0;
  const double tokens = c.cached ? 1.0
                        : of.by_token && c.law.empty() && !c.taps
                            ? ChosenTokens::share(c.T, policy, c.prefill)
                            : 1.0;
  const double share = part * tokens + (1.0 - part * tokens) * kPlainShare;
  // A law's runs, or a look at drawn roundings beside the worst case, or the worst case alone.
  // The stages together are the layer once more.
  const double looks = (!c.law.empty()                   ? kTensorLawFactor
                        : keeps_sixteen_bits(c.contract) ? kSampledFactor
                                                         : 1.0) *
                       (c.taps ? kStagesFactor : 1.0);
  const double of_sequence =
      looks * (share * (made * of.operations + kTensorElementCost * of.elements) + kSequenceCost + calls) +
      (1.0 - part) * kTensorElementCost / 2 * of.elements;
  return static_cast<double>(c.B) * of_sequence / kTensorUnit;
}

Index TensorSystem::sequences_to_hold(const Case& c, const JudgePolicy& policy) const {
  if (!c.lengths.empty()) return sequences_of(c);
  if (c.B <= 1 || !c.law.empty()) return c.B;
  Case one = c;
  one.B = 1;
  const double seconds = kSecondsOfWork * measured_share(row.name) * work(one, policy);
  if (!(seconds * static_cast<double>(policy.held_heads) > policy.sequence_seconds))
    return std::min(c.B, policy.held_heads);
  return std::min(c.B, std::max<Index>(static_cast<Index>(policy.sequence_seconds / seconds), 1));
}

std::vector<CaseTensor> TensorSystem::inputs(const Resolved& r) const { return tensor_inputs(r); }

namespace {

/// Fills rows that no call was meant to write with exact values, so that an explanation does not report them as wrong.
void fill_given(const Resolved& r, Trace& trace) {
  for (CaseTensor& y : trace.outputs) {
    const auto each = static_cast<std::size_t>(y.spec.size());
    for (std::size_t b = 0; b < trace.oracles.size(); ++b) {
      const Matrix<double>& exact = get(trace.oracles[b].exact, y.spec.name);
      const Index given = exact.size() / r.c.T * r.c.prefill;
      std::transform(exact.data(), exact.data() + given,
                     y.data.begin() + static_cast<std::ptrdiff_t>(b * each),
                     [](double x) { return static_cast<float>(x); });
    }
  }
}

}  // namespace

Judgement TensorSystem::run(const Resolved& r, const KernelChoice& kernels, const RunOptions& options,
                            const JudgePolicy& policy, Trace* trace) const {
  std::vector<CaseTensor> given = inputs(r);
  round_inputs(given, kernels.named->formats);
  const std::string& native = kernels.named->form;
  if (r.law != nullptr) {
    if (trace) trace->native = native;
    TensorSubject subject{
        r,
        *this,
        given,
        native,
        [&](const Resolved& sized, const std::vector<CaseTensor>& of, const std::vector<Index>& cuts) {
          return by_sequence(run_tensors(sized, *this, of, kernels, options, cuts).outputs);
        },
        trace ? &trace->tensor_law : nullptr};
    const auto judged = [&](int first, int samples) {
      if (trace) trace->tensor_law.clear();
      subject.first_sample = first;
      subject.samples = samples;
      return judge_law(*r.law, subject);
    };
    Judgement judgement = judged(0, 0);
    if (judgement.verdict != Verdict::vacuous || judgement.gate == kZeroGate || judgement.rows == 0 ||
        !has_samples(*r.contract) || work(r.c, policy) > policy.law_draw_work)
      return judgement;
    judgement = judged(0, policy.samples);
    return judgement.verdict == Verdict::fail ? judged(policy.samples, policy.second_look * policy.samples)
                                              : judgement;
  }
  if (trace) *trace = {given, {}, native, {}, {}, {}};
  Written written = run_tensors(r, *this, given, kernels, options, cuts_of(r));
  std::vector<Tensors<double>> sequences = by_sequence(written.outputs);
  const std::vector<Tensors<double>> taps = by_sequence(written.taps);
  for (std::size_t b = 0; b < taps.size(); ++b) sequences[b].insert(taps[b].begin(), taps[b].end());
  const Judgement judgement =
      judge_tensors(r, *this, native, given, sequences, policy, trace ? &trace->oracles : nullptr);
  if (trace) {
    trace->outputs = std::move(written.outputs);
    if (r.c.cached) fill_given(r, *trace);
    std::ranges::move(written.taps, std::back_inserter(trace->outputs));
  }
  return judgement;
}

std::vector<CaseTensor> TensorSystem::outputs(const Resolved& r, const std::vector<CaseTensor>& inputs,
                                              const KernelChoice& kernels, const RunOptions& options) const {
  return run_tensors(r, *this, inputs, kernels, options, cuts_of(r)).outputs;
}

std::vector<Held> TensorSystem::held(const Resolved& r, const Trace& trace) const {
  std::vector<Held> out;
  const std::vector<Tensors<double>> actual = by_sequence(trace.outputs);
  for (std::size_t b = 0; b < actual.size(); ++b) {
    const OperatorOracle& oracle = trace.oracles[b];
    for (const TensorSpec& spec : row.signature(call(r.c, trace.native)).outputs) {
      Held held{.output = spec.name,
                .axis = spec.axis,
                .sequence = static_cast<Index>(b),
                .exact = get(oracle.exact, spec.name),
                .actual = get(actual[b], spec.name),
                .limit = get(oracle.tolerance, spec.name)};
      held.allowed = held.limit.rowwise().squaredNorm();
      // An element without a bound stands apart: the others' are the limit.
      const Matrix<double> finite = held.limit.unaryExpr([](double x) { return std::isfinite(x) ? x : 0.0; });
      held.row_limit = finite.rows() > 0 ? finite.rowwise().norm().maxCoeff() : 0.0;
      held.worst_case = held.row_limit;
      held.predicted = std::numeric_limits<double>::quiet_NaN();
      out.push_back(std::move(held));
    }
  }
  return out;
}

Judgement TensorSystem::judge(const Resolved& r, const RunFile& file, const JudgePolicy& policy,
                              Trace* trace) const {
  return judge_tensor_file(r, *this, file, policy, trace);
}

}  // namespace samestate

#include "harness/systems/tensor_system.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "fixtures/run_file.h"
#include "harness/cases/counter.h"
#include "harness/cases/keys.h"
#include "harness/run/chosen_heads.h"
#include "harness/run/kernel_table.h"
#include "harness/run/plugin.h"
#include "harness/run/run_case.h"
#include "harness/systems/model_shapes.h"
#include "harness/systems/sampled_sequences.h"
#include "harness/systems/saved_run.h"
#include "harness/systems/tensor_inputs.h"
#include "oracles/contracts.h"
#include "oracles/judge.h"
#include "oracles/limits.h"
#include "oracles/reasons.h"
#include "oracles/systems/judge_samples.h"
#include "oracles/systems/judge_sequence.h"
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
  CallLoop loop;
  loop.settings.batch = r.c.B;
  for (const auto& [name, value] : call.parameters) loop.settings.parameters.emplace_back(name, value);
  for (const CaseTensor& x : inputs)
    loop.inputs.push_back(
        {x.spec.name, x.spec.axis, x.batched, x.shape, &x.data, {}, x.spec.content == Content::slot});
  std::vector<TensorSpec> specs = signature.outputs;
  if (r.c.taps && !kernel.taps.empty()) {
    for (TensorSpec& tap : stages_of(system.name)(call).taps) {
      if (std::ranges::find(kernel.taps, tap.name) != kernel.taps.end()) specs.push_back(std::move(tap));
    }
  }
  for (const TensorSpec& spec : specs) {
    std::vector<std::int64_t> shape(spec.shape.begin(), spec.shape.end());
    shape.insert(shape.begin(), r.c.B);
    loop.outputs.push_back({spec.name, spec.axis, true, std::move(shape), nullptr,
                            spec.axis == Axis::state ? spec.name : std::string()});
  }
  Index begin = 0;
  for (const Index end : cuts) loop.path.push_back({end - std::exchange(begin, end), r.c.chunk, false});
  loop.path.push_back({r.c.T - begin, r.c.chunk, false});
  std::vector<std::vector<float>> written = run_calls(
      loop, options,
      [&](const Segment&, const KernelCall& one) { run_row(kernel, one, *r.contract, options.of); });
  Written out;
  for (std::size_t i = 0; i < written.size(); ++i) {
    (i < signature.outputs.size() ? out.outputs : out.taps)
        .push_back({specs[i], true, loop.outputs[i].shape, std::move(written[i])});
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

/// Of a law that asks drawn roundings: each of its runs is evaluated some forty times.
constexpr double kMostSampledLaw = 2.0;

/// What the sizes of a case say of one of its sequences.
struct OfSizes {
  bool possible = false;
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

TensorSystem::TensorSystem(const Operator& of) : row(of) {
  name = of.name;
  equation = of.equation;
  kernel_rows = kTensorRows;
  in_file = {"input.", "output."};
  const StagesOf stages = stages_of(name);
  keys = common_keys(stages != nullptr);
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
  Call least;
  least.form = of.forms.front().name;
  least.tokens = least.chunk = 1;
  for (const Parameter& size : of.parameters) least.parameters.emplace(size.name, size.standard);
  const std::vector<TensorSpec> tensors = of.signature(least).inputs;
  if (stages != nullptr) {
    for (const OperatorForm& form : of.forms) {
      least.form = form.name;
      for (const TensorSpec& tap : stages(least).taps) {
        if (std::ranges::find(taps, tap.name) == taps.end()) taps.push_back(tap.name);
      }
    }
  }
  const auto any = [&](Content content) {
    return std::ranges::count(tensors, content, &TensorSpec::content) > 0;
  };
  const bool masked = any(Content::mask), rates = any(Content::log_rate);
  const bool trains = any(Content::zeros) || any(Content::no_sum) || any(Content::no_count) ||
                      std::ranges::count(tensors, kStepBias, &TensorSpec::name) > 0;
  for (const Regime& regime : tensor_regimes()) {
    if ((masked || !regime.tensors.masked_anywhere) && (rates || !regime.tensors.of_rates) &&
        (trains || !regime.tensors.trained))
      regimes.push_back(&regime);
  }
  for (const TensorLaw& law : tensor_laws()) {
    if (!law.fits(of)) continue;
    laws.push_back(law.name);
    rows_.push_back(&law);
    // A call that goes on from states and caches with more tokens than a tile has; other lengths are the law's own.
    if (of.streams && law.name.name == "split") plan.limits.push_back("B=2 T=200 law=split");
  }
}

Call TensorSystem::call(const Case& c, std::string_view native) const {
  Call call;
  call.form = c.form == "decode" ? std::string(native) : c.form;
  call.tokens = c.T;
  call.chunk = c.chunk;
  for (const auto& [key, value] : c.parameters) call.parameters.emplace(key, value);
  return call;
}

std::vector<Index> cuts_of(const Resolved& r) {
  std::vector<Index> cuts;
  if (!r.form->decodes) return cuts;
  for (Index t = std::max<Index>(r.c.prefill, 1); t < r.c.T; ++t) cuts.push_back(t);
  return cuts;
}

Signature TensorSystem::signature(const Case& c) const {
  return row.signature(call(c, row.forms.front().name));
}

double TensorSystem::work(const Case& c) const {
  // Multiplications of the reference, which the running error makes about thirty times as dear, in some millions of which
  // most cases stay far below.
  constexpr double kMost = 6e6;
  constexpr double kElement = 16;         // drawn, copied, judged
  constexpr double kSequence = 2000;      // a call of its own
  constexpr double kTensorOfCall = 1000;  // of several calls: each takes its part of a tensor, states go on
  const CaseForm* asked = this->form(c.form);
  const OfSizes of = of_sizes(*this, c, asked);
  if (!of.possible) return std::numeric_limits<double>::infinity();
  const bool decodes = asked != nullptr && asked->decodes;
  const double calls = decodes ? static_cast<double>(c.T - c.prefill) * kTensorOfCall * of.tensors : 0.0;
  // Of many sequences few are held to their tolerance (ChosenHeads), the others evaluated in float64.
  constexpr double kPlain = 1.0 / 25;
  const auto sequences = static_cast<double>(std::max<Index>(c.B, 1));
  const double part = c.law.empty() ? std::min(1.0, static_cast<double>(kChosenHeads) / sequences) : 1.0;
  const double share = part + (1.0 - part) * kPlain;
  // A law's runs, or a look at drawn roundings beside the worst case, or the worst case alone.
  constexpr double kLaw = 5.0, kSampled = 2.0;
  // The stages together are the layer once more.
  const double looks = (!c.law.empty()                   ? kLaw
                        : keeps_sixteen_bits(c.contract) ? kSampled
                                                         : 1.0) *
                       (c.taps ? 2.0 : 1.0);
  const double of_sequence = looks * (share * (of.operations + kElement * of.elements) + kSequence + calls) +
                             (1.0 - part) * kElement / 2 * of.elements;
  return static_cast<double>(c.B) * of_sequence / kMost;
}

std::vector<CaseTensor> TensorSystem::inputs(const Resolved& r) const { return tensor_inputs(r); }

Judgement TensorSystem::run(const Resolved& r, const KernelChoice& kernels, const RunOptions& options,
                            Trace* trace) const {
  std::vector<CaseTensor> given = inputs(r);
  const std::string& native = kernels.named->form;
  if (r.law != nullptr) {
    const TensorLaw& law = *rows_.at(static_cast<std::size_t>(r.law - laws.data()));
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
      return law.judge(subject);
    };
    Judgement judgement = judged(0, 0);
    if (judgement.verdict != Verdict::vacuous || judgement.gate == kZeroGate || judgement.rows == 0 ||
        !has_samples(*r.contract) || work(r.c) > kMostSampledLaw)
      return judgement;
    judgement = judged(0, kSamples);
    return judgement.verdict == Verdict::fail ? judged(kSamples, kSecondLook * kSamples) : judgement;
  }
  if (trace) *trace = {given, {}, native, {}, {}, {}};
  Written written = run_tensors(r, *this, given, kernels, options, cuts_of(r));
  std::vector<Tensors<double>> sequences = by_sequence(written.outputs);
  const std::vector<Tensors<double>> taps = by_sequence(written.taps);
  for (std::size_t b = 0; b < taps.size(); ++b) sequences[b].insert(taps[b].begin(), taps[b].end());
  const Judgement judgement =
      judge_tensors(r, *this, native, given, sequences, trace ? &trace->oracles : nullptr);
  if (trace) {
    trace->outputs = std::move(written.outputs);
    std::ranges::move(written.taps, std::back_inserter(trace->outputs));
  }
  return judgement;
}

namespace {

/// Of many sequences also those that float64 shows to be farthest off.
ChosenHeads chosen_sequences(const Case& c, const TensorSystem& system, Call call,
                             const std::vector<CaseTensor>& inputs,
                             const std::vector<Tensors<double>>& outputs) {
  ChosenHeads chosen(c.B, 1, c.seed, [](Index) { return true; });
  if (chosen.all()) return chosen;
  call.form = system.row.forms.front().name;
  Farthest farthest;
  for (Index b = 0; b < c.B; ++b) {
    if (chosen.takes(b, 0)) continue;
    const Tensors<double> exact = system.row.exact(call, sequence_of(inputs, b));
    Distance distance;
    for (const auto& [name, x] : exact) distance.add(x, get(outputs[static_cast<std::size_t>(b)], name));
    farthest.add(b, distance);
  }
  for (const Index b : farthest.heads()) chosen.add(b, 0);
  return chosen;
}

}  // namespace

Judgement judge_tensors(const Resolved& r, const TensorSystem& system, std::string_view native,
                        const std::vector<CaseTensor>& inputs, const std::vector<Tensors<double>>& outputs,
                        std::vector<OperatorOracle>* oracles) {
  const Call call = system.call(r.c, native);
  const ChosenHeads chosen = chosen_sequences(r.c, system, call, inputs, outputs);
  // Of work 1, some 35 ms of the running error. Without rounding points samples are dearer, and few runs are in doubt.
  Case alone = r.c;
  alone.B = 1;
  alone.taps = false;
  const double one = system.work(alone);
  const Index held = chosen.count();
  const auto twins = [&](double work, bool points) {
    return SampledSequences(held, work, points ? 0.5 : 0.0, points ? 2.0 : 0.0);
  };
  const auto draws = [&](double work, bool points) {
    const bool law = r.law != nullptr;
    // Samples of a large chunk, as its form computes it, take a minute where the running error takes a tenth of a second.
    const double in_doubt = r.c.chunk > 64 ? 0.0 : 4.0;
    return SampledSequences(held, work, points ? 0.1 : law ? 0.0 : in_doubt, law ? 0.0 : points ? 1.0 : 0.3);
  };
  // A twin is sought among the subsets of its points. A stage has few of the layer's, and part of its work.
  constexpr double kOfStage = 0.25;
  const std::vector<Index> cuts = cuts_of(r);
  std::optional<Judgement> worst, zeros;
  Index looked = 0;
  for (Index b = 0; b < r.c.B; ++b) {
    if (!chosen.takes(b, 0) && oracles == nullptr) continue;
    const Tensors<double> sequence = sequence_of(inputs, b);
    OperatorOracle oracle = operator_oracle(system.row, call, sequence, cuts, *r.contract);
    if (chosen.takes(b, 0)) {
      const bool points = oracle.points && r.law == nullptr;
      const Tensors<double>& actual = outputs[static_cast<std::size_t>(b)];
      const auto asked = [&](double work) {
        return GatesAsked{[=, &looked](Verdict v) { return twins(work, points).takes(looked, v); },
                          [=, &looked](Verdict v) { return draws(work, points).takes(looked, v); }};
      };
      Judgement judgement = judge_sequence({system.row, call, sequence, cuts, *r.contract, oracle}, actual,
                                           r.c.seed, asked(one));
      if (std::ranges::any_of(system.taps, [&](const std::string& tap) { return actual.contains(tap); }))
        add_stages(judgement, judge_stages(system.row, call, sequence, actual, cuts, *r.contract, r.c.seed,
                                           asked(kOfStage * one)));
      judgement.worst.sequence = b;
      ++looked;
      // What is zero by right (a request of no slot) is no evidence of its own, and no reason to distrust the others'.
      const bool zero =
          judgement.verdict == Verdict::vacuous && judgement.gate == kZeroGate && judgement.stages.empty();
      std::optional<Judgement>& to = zero ? zeros : worst;
      if (to) {
        merge(*to, judgement);
      } else {
        to = std::move(judgement);
      }
    }
    if (oracles) oracles->push_back(std::move(oracle));
  }
  if (!worst) worst = zeros ? std::move(*zeros) : Judgement{};
  chosen.note(*worst);
  return *worst;
}

Tensors<double> sequence_of(const std::vector<CaseTensor>& inputs, Index b) {
  Tensors<double> out;
  for (const CaseTensor& tensor : inputs) {
    const Index size = tensor.spec.size();
    Matrix<double> x(tensor.spec.rows(), tensor.spec.columns());
    const std::size_t offset = static_cast<std::size_t>(tensor.batched ? b * size : 0);
    for (Index i = 0; i < size; ++i)
      x.data()[i] = static_cast<double>(tensor.data[offset + static_cast<std::size_t>(i)]);
    out.emplace(tensor.spec.name, std::move(x));
  }
  return out;
}

std::vector<Tensors<double>> by_sequence(const std::vector<CaseTensor>& outputs) {
  std::vector<Tensors<double>> out;
  const Index B = outputs.empty() ? 0 : outputs.front().shape.front();
  for (Index b = 0; b < B; ++b) out.push_back(sequence_of(outputs, b));
  return out;
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

Judgement TensorSystem::judge(const Resolved& r, const RunFile& file, Trace* trace) const {
  return judge_tensor_file(r, *this, file, trace);
}

}  // namespace samestate

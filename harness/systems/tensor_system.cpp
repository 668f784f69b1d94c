#include "harness/systems/tensor_system.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "harness/cases/counter.h"
#include "harness/cases/keys.h"
#include "harness/cases/laws.h"
#include "harness/cases/shards.h"
#include "harness/run/chosen_heads.h"
#include "harness/run/chosen_tokens.h"
#include "harness/run/judging_cost.h"
#include "harness/run/kernel_table.h"
#include "harness/run/law_subject.h"
#include "harness/run/run_case.h"
#include "harness/systems/judge_tensors.h"
#include "harness/systems/model_shapes.h"
#include "harness/systems/recurrent_system.h"
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

/// The results of a kernel: the outputs of its system, and the taps that the case asks for and the kernel's
/// row offers.
struct Written {
  std::vector<CaseTensor> outputs, taps;
};

/// Runs a kernel on the inputs of a case.
Written run_tensors(const Resolved& r, const TensorSystem& system, const TensorCalls& calls,
                    const std::vector<CaseTensor>& inputs, const KernelRow& kernel,
                    const RunOptions& options) {
  std::vector<TensorSpec> specs = calls.signature.outputs;
  if (!kernel.taps.empty())
    std::ranges::move(handed_out(kernel, system.taps_of(r, kernel.form), r), std::back_inserter(specs));
  const CallLoop loop = tensor_loop(r.c, calls.whole, inputs, specs, calls.cuts);
  std::vector<std::vector<float>> written = run_calls(
      loop, options,
      [&](const Segment&, const KernelCall& one) { run_row(kernel, one, *r.contract, options.of); });
  Written out;
  for (std::size_t i = 0; i < written.size(); ++i) {
    (i < calls.signature.outputs.size() ? out.outputs : out.taps)
        .push_back(case_tensor(specs[i], r.c, std::move(written[i])));
  }
  return out;
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

/// `signature` is that of a call of one token.
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
  put(Property::decay, row.family != nullptr && row.family->gated);
  put(Property::gradients, is_backward(row.name));
  put(Property::key_heads, row.family != nullptr);
  const bool of_tokens =
      std::ranges::all_of(signature.outputs, [](const TensorSpec& x) { return x.axis == Axis::tokens; });
  put(Property::later_cotangents,
      row.family != nullptr || (is_backward(row.name) && !row.token_wise && of_tokens));
  return has;
}

}  // namespace

namespace {

/// The size of a row that the key of the same name sets.
constexpr std::string_view kCotangent = "cotangent";
/// The values of that key, in the order of Cotangent.
constexpr std::array<std::string_view, 3> kCotangents{"both", "o", "state"};

/// Cases of a backward pass that no key's row gives: heads of both maps, widths on both sides of a tile, models'
/// widths, every absent tensor, every memory order.
constexpr std::string_view kBackwardShapes[] = {
    "Hk=2 Hv=6",
    "Hk=2 Hv=6 heads=tiled",
    "Hv=8",
    "dk=1 dv=1",
    "dk=3 dv=70",
    "dk=70 dv=3",
    "dk=128 dv=128 T=70",
    "dk=160 dv=96 T=40",
    "dk=128 dv=128 Hv=2 T=130 chunk=64 l2norm=1",
    "l2norm=1 regime=tiny_norms",
    "scale=2",
    "scale=2 l2norm=1 Hk=2 Hv=4",
    "cotangent=o state=none",
    "cotangent=state state=none",
    "cotangent=state T=1",
    "T=0",
    "T=1",
    "B=3 Hk=2 Hv=4 layout=padded",
    "B=2 Hk=2 Hv=4 layout=mixed",
    "B=2 Hk=2 Hv=4 layout=fused",
    "B=2 Hk=2 Hv=4 layout=permuted",
    "B=2 Hk=2 Hv=4 layout=sliced",
    "B=3 Hk=2 Hv=4 layout=far",
    "form=packed lengths=70,9,0,71,3,66,1,69 dk=32 dv=32 chunk=64"};
/// Tokens that no longer fit 16 bits, and sequences times heads that do not.
constexpr std::string_view kBackwardLimits[] = {"dk=2 dv=2 T=65537 chunk=64",
                                                "dk=2 dv=2 T=2 B=16400 Hk=4 Hv=4 chunk=64"};

}  // namespace

TensorSystem::TensorSystem(const Operator& of) : row(of) {
  name = of.name;
  equation = of.equation;
  numerics = Numerics::running_errors;
  kernel_rows = kTensorRows;
  in_file = {"input.", "output."};
  const StagesOf stages = stages_of(name);
  Call least;
  least.form = of.forms.front().name;
  least.tokens = least.chunk = 1;
  for (const Parameter& size : of.parameters) least.parameters.emplace(size.name, size.standard);
  const Signature signature = of.signature(least);
  const std::vector<TensorSpec>& tensors = signature.inputs;
  const bool backward = is_backward(name),
             passes = backward || find_operator(fmt::format("{}{}", name, kBackward)) != nullptr;
  const bool two_cotangents =
      std::ranges::find(of.parameters, kCotangent, &Parameter::name) != of.parameters.end();
  // If tokens are independent, sequences placed one after another count as one.
  const bool packs =
      of.streams || of.family != nullptr ||
      (!of.token_wise && (backward || std::ranges::all_of(signature.outputs, [](const TensorSpec& x) {
                            return x.axis == Axis::tokens;
                          })));
  const auto where = [](bool there, KeyOf key) { return there ? key : KeyOf::every; };
  keys = keys_of({where(of.family != nullptr, KeyOf::family), where(backward, KeyOf::backward),
                  where(two_cotangents, KeyOf::two_cotangents), where(passes, KeyOf::passes),
                  where(packs, KeyOf::packed), where(stages != nullptr, KeyOf::layers)});
  plan = {.start = "T=21 chunk=8", .law = "B=2 T=13", .seeded = 50};
  if (of.family != nullptr) {
    sizes = family_sizes();
    plan.start = "T=33 chunk=16 state=random";
    plan.law = "B=2 T=35 Hk=2 Hv=4";
  } else {
    for (const Parameter& size : of.parameters) {
      if (size.name != kCotangent) sizes.push_back({size});
    }
  }
  for (const ModelShape& shape : model_shapes()) {
    if (shape.system != name) continue;
    std::string part = fmt::format("B={} T={}", shape.B, shape.T);
    for (const auto& [size, value] : shape.sizes) part += fmt::format(" {}={}", size, value);
    (shape.once ? plan.limits : plan.models).push_back(std::move(part));
  }
  for (const OperatorForm& form : of.forms) forms.push_back({.name = form.name, .chunked = form.chunked});
  // The oracle evaluates the recurrence, and a line without a form means chunks, as it does of the forward pass.
  if (of.family != nullptr) std::ranges::stable_partition(forms, &CaseForm::chunked);
  // Its calls may be of any form and have the chunk of that form.
  if (of.streams) {
    forms.push_back({.name = "decode", .decodes = true});
    // A batch as in serving: one token of each of more sequences than a block has threads, with models' sizes
    // otherwise.
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
  if (of.family != nullptr) {
    plan.every.push_back("T=70 Hv=2 dk=32 dv=40 chunk=64");
    if (of.family->gated) plan.every.push_back("T=70 Hv=2 chunk=16 cotangent=state regime=only_decay");
    std::ranges::copy(kBackwardShapes, std::back_inserter(plan.shapes));
    for (const std::string_view part : kBackwardLimits) plan.limits.emplace_back(part);
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
  for (const Regime& regime : samestate::regimes()) {
    if (of.family != nullptr && (!regime.gated || of.family->gated) && (!regime.delta || of.family->delta))
      regimes.push_back(&regime);
  }
  for (const Regime& regime : tensor_regimes()) {
    // Those of a backward pass alone are rows with a decay.
    if (of.family != nullptr && regime.gated && of.family->gated) regimes.push_back(&regime);
    if (of.family != nullptr || regime.gated) continue;
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
  call.parameters = parameters(c);
  if (row.family != nullptr) {
    const Regime* known = regime(c.regime);
    call.scale = scale_of(c, known != nullptr ? *known : *regimes.front());
  }
  return call;
}

Sizes TensorSystem::parameters(const Case& c) const {
  const auto given = std::ranges::find(kCotangents, c.cotangent) - kCotangents.begin();
  if (row.family == nullptr) {
    Sizes own = c.parameters;
    if (has_key(kCotangent)) own.emplace(kCotangent, given);
    return own;
  }
  return {{"Hk", c.Hk},
          {"Hv", c.Hv},
          {"dk", c.dk},
          {"dv", c.dv},
          {"tiled", c.heads == HeadMap::tiled ? 1 : 0},
          {"l2norm", c.l2norm ? 1 : 0},
          {"state", c.state == "random" ? 1 : 0},
          {"cotangent", given}};
}

CallLoop tensor_loop(const Case& c, const Call& call, const std::vector<CaseTensor>& inputs,
                     const std::vector<TensorSpec>& outputs, const std::vector<Index>& cuts) {
  CallLoop loop;
  loop.settings.batch = c.B;
  const bool backward = is_backward(c.system);
  for (const auto& [name, value] : call.parameters) {
    const bool setting = backward && (name == "tiled" || name == "l2norm");
    if (setting) loop.settings.set(name, static_cast<double>(value));
    // Which tensors are given shows in the call itself.
    const Key* key = key_named(name);
    if (!backward || (key == nullptr ? !setting : key->size != nullptr))
      loop.settings.parameters.emplace_back(name, value);
  }
  if (backward) {
    loop.settings.set("backward", 1.0);
    loop.settings.set("scale", call.scale);
  }
  for (const CaseTensor& x : inputs)
    loop.inputs.push_back(
        {x.spec.name, x.spec.axis, x.batched, x.shape, &x.data, {}, x.spec.content == Content::slot});
  for (const TensorSpec& spec : outputs) {
    loop.outputs.push_back({spec.name, spec.axis, spec.axis != Axis::whole, case_shape(spec, c), nullptr,
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

TensorCalls TensorSystem::calls(const Resolved& r, std::string_view native) const {
  Call whole = call(r.c, native);
  Signature signature = row.signature(whole);
  return {std::move(whole), cuts_of(r), std::move(signature)};
}

Signature TensorSystem::signature(const Case& c) const {
  return row.signature(call(c, row.forms.front().name));
}

std::vector<TensorSpec> TensorSystem::taps_of(const Resolved& r, std::string_view native) const {
  if (!r.c.taps) return {};
  return stages_of(name)(call(r.c, native)).taps;
}

std::vector<CaseTensor> TensorSystem::inputs(const Resolved& r) const { return tensor_inputs(r); }

namespace {

/// Fills rows that no call was meant to write with exact values, so that an explanation does not report them
/// as wrong.
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
  const std::string& native = kernels.named->form;
  if (const CaseForm* called = form(native); called != nullptr && called->chunked && r.c.chunk < 1)
    throw Unavailable({Outcome::Kind::unsupported,
                       fmt::format("chunk={}: {} goes in chunks of at least 1 token; write chunk=64",
                                   r.c.chunk, kernels.named->name)});
  std::vector<CaseTensor> given = inputs(r);
  round_inputs(given, kernels.named->formats);
  if (r.law != nullptr) {
    if (trace) trace->native = native;
    TensorSubject subject{
        r,
        *this,
        given,
        native,
        [&](const Resolved& sized, const std::vector<CaseTensor>& of, const std::vector<Index>& cuts) {
          TensorCalls own = calls(sized, native);
          own.cuts = cuts;
          return by_sequence(run_tensors(sized, *this, own, of, *kernels.named, options).outputs);
        },
        trace ? &trace->tensor_law : nullptr};
    subject.deterministic = options.deterministic;
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
  const TensorCalls calls = this->calls(r, native);
  Written written = run_tensors(r, *this, calls, given, *kernels.named, options);
  if (sums_sequences(calls.signature)) {
    Trace run{std::move(given), std::move(written.outputs), native, {}, {}, {}};
    const Judgement judgement = judge(r, run, policy, trace ? &trace->oracles : nullptr);
    if (trace) trace->outputs = std::move(run.outputs);
    return judgement;
  }
  std::vector<Tensors<double>> sequences = by_sequence(written.outputs);
  const std::vector<Tensors<double>> taps = by_sequence(written.taps);
  for (std::size_t b = 0; b < taps.size(); ++b) sequences[b].insert(taps[b].begin(), taps[b].end());
  const Judgement judgement =
      judge_tensors(r, *this, calls, given, sequences, policy, trace ? &trace->oracles : nullptr);
  if (trace) {
    trace->outputs = std::move(written.outputs);
    if (r.c.cached) fill_given(r, *trace);
    std::ranges::move(written.taps, std::back_inserter(trace->outputs));
  }
  return judgement;
}

std::vector<CaseTensor> TensorSystem::outputs(const Resolved& r, const std::vector<CaseTensor>& inputs,
                                              const KernelChoice& kernels, const RunOptions& options) const {
  return run_tensors(r, *this, calls(r, kernels.named->form), inputs, *kernels.named, options).outputs;
}

std::vector<Held> TensorSystem::held(const Resolved& r, const Trace& trace) const {
  std::vector<Held> out;
  const std::vector<Tensors<double>> actual =
      by_sequence(is_end_to_end(r) ? end_to_end(r, trace.outputs) : trace.outputs);
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
      // An element without a bound is left out; the limit comes from the others.
      const Matrix<double> finite = held.limit.unaryExpr([](double x) { return std::isfinite(x) ? x : 0.0; });
      held.row_limit = finite.rows() > 0 ? finite.rowwise().norm().maxCoeff() : 0.0;
      held.worst_case = held.row_limit;
      held.predicted = std::numeric_limits<double>::quiet_NaN();
      out.push_back(std::move(held));
    }
  }
  return out;
}

Judgement TensorSystem::judge(const Resolved& r, const Trace& run, const JudgePolicy& policy,
                              std::vector<OperatorOracle>* oracles) const {
  if (run.given != Given{})
    throw Error(
        fmt::format("judge: metadata 'given' belongs to the recurrent family, but {} does not", r.c.system));
  if (!is_end_to_end(r))
    return judge_tensors(r, *this, calls(r, run.native), run.inputs, by_sequence(run.outputs), policy,
                         oracles);
  const Resolved one = end_to_end(r);
  const Trace seen = end_to_end(r, run);
  const TensorCalls whole = calls(one, run.native);
  Judgement judgement =
      judge_tensors(one, *this, whole, seen.inputs, by_sequence(seen.outputs), policy, oracles);
  // Rows are those of all sequences, unless the output is named in which they lie.
  judgement.worst.sequence = -1;
  for (const TensorSpec& output : whole.signature.outputs) {
    if (judgement.reason.starts_with("output " + output.name))
      judgement.worst = within_sequences(r, output, judgement.worst);
  }
  return judgement;
}

}  // namespace samestate

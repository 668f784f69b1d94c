#include "harness/systems/recurrent_system.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "fixtures/run_file.h"
#include "harness/cases/keys.h"
#include "harness/run/family_run.h"
#include "harness/run/judge_batch.h"
#include "harness/run/run_case.h"
#include "harness/systems/saved_run.h"
#include "reference/error.h"

namespace samestate {

RecurrentSystem::RecurrentSystem(const Family& row, bool parallel) : family(row) {
  name = row.name;
  equation = row.equation;
  keys = family_keys();
  standard_form = "chunked";
  forms = {{.name = "recurrent"}, {.name = "chunked", .chunked = true}};
  if (parallel) forms.push_back({.name = "parallel", .whole = true});
  forms.push_back({.name = "decode", .chunked = true, .decodes = true});
  forms.push_back({.name = "packed", .chunked = true, .packed = true});
  for (const Regime& regime : samestate::regimes()) {
    if ((!regime.gated || row.gated) && (!regime.delta || row.delta)) regimes.push_back(&regime);
  }
  for (const Law& law : samestate::laws()) {
    if (!law.fits(row)) continue;
    laws.push_back({law.name, law.ids, law.summary});
    rows_.push_back(&law);
  }
}

void RecurrentSystem::check(const Case& c) const {
  const CaseForm& of = *form(c.form);
  if (c.Hv % c.Hk != 0) {
    throw Error(
        fmt::format("Hv={} is not a multiple of Hk={}: each key head serves Hv/Hk value heads", c.Hv, c.Hk));
  }
  if (c.form == "chunked" && c.chunk < 1) {
    throw Error("chunk=0: a chunk holds at least 1 token; use form=recurrent for token by token");
  }
  if (of.packed == c.lengths.empty()) {
    throw Error(c.lengths.empty() ? "form=packed needs lengths=N,N,...: the tokens of each sequence"
                                  : "lengths belongs to form=packed");
  }
  if (c.scale &&
      !(std::isfinite(*c.scale) && static_cast<double>(static_cast<float>(*c.scale)) == *c.scale)) {
    throw Error(fmt::format("scale={}: must be finite and representable in fp32", *c.scale));
  }
  if (!c.lengths.empty()) {
    for (std::int64_t length : c.lengths) {
      if (length < 0 || length > kLargestExtent) {
        throw Error(fmt::format("lengths: {} must lie in 0..{}", length, kLargestExtent));
      }
    }
    if (c.B != 1) throw Error(fmt::format("B={}: packed sequences share one batch row, so B=1", c.B));
    const std::int64_t sum = std::reduce(c.lengths.begin(), c.lengths.end());
    if (sum != c.T) throw Error(fmt::format("T={} but the lengths sum to {}: leave T out", c.T, sum));
  }
  const double tokens = static_cast<double>(c.B) * static_cast<double>(c.T) * static_cast<double>(c.Hv);
  const double states =
      static_cast<double>(c.lengths.empty() ? c.B : static_cast<std::int64_t>(c.lengths.size())) *
      static_cast<double>(c.Hv) * static_cast<double>(c.dk) * static_cast<double>(c.dv);
  const double largest = std::max({tokens * static_cast<double>(std::max(c.dk, c.dv)), states});
  if (largest > static_cast<double>(kLargestCase)) {
    throw Error(
        fmt::format("case needs a tensor of {:.3g} elements: at most {} (B T Hv max(dk, dv) and N Hv dk dv)",
                    largest, kLargestCase));
  }
}

Signature RecurrentSystem::signature(const Case& c) const {
  Signature s;
  s.inputs = {{"q", Axis::tokens, {c.T, c.Hk, c.dk}, Content::key},
              {"k", Axis::tokens, {c.T, c.Hk, c.dk}, Content::key},
              {"v", Axis::tokens, {c.T, c.Hv, c.dv}, Content::activation}};
  if (family.gated) s.inputs.push_back({"g", Axis::tokens, {c.T, c.Hv}, Content::log_decay});
  if (family.delta) s.inputs.push_back({"beta", Axis::tokens, {c.T, c.Hv}, Content::strength});
  if (c.state == "random")
    s.inputs.push_back({"initial_state", Axis::state, {c.Hv, c.dk, c.dv}, Content::activation});
  s.outputs = {{"o", Axis::tokens, {c.T, c.Hv, c.dv}}, {"final_state", Axis::state, {c.Hv, c.dk, c.dv}}};
  return s;
}

std::vector<CaseTensor> RecurrentSystem::inputs(const Resolved& r) const {
  Batch batch = batch_of(r, family);
  std::vector<CaseTensor> out;
  for (const TensorSpec& spec : signature(r.c).inputs) {
    std::vector<float>& data = spec.name == "q"      ? batch.q
                               : spec.name == "k"    ? batch.k
                               : spec.name == "v"    ? batch.v
                               : spec.name == "g"    ? batch.g
                               : spec.name == "beta" ? batch.beta
                                                     : batch.initial_state;
    std::vector<std::int64_t> shape(spec.shape.begin(), spec.shape.end());
    shape.insert(shape.begin(), spec.axis == Axis::state ? batch.shape.sequences() : r.c.B);
    out.push_back({spec, true, std::move(shape), std::move(data)});
  }
  return out;
}

Judgement RecurrentSystem::run(const Resolved& r, const KernelChoice& kernels, const RunOptions& options,
                               Trace* trace) const {
  Batch batch = batch_of(r, family);
  require_finite(batch);
  Outputs outputs;
  LawTrace law;
  const Runner runner = [&](const Batch& of, const Path& path) {
    return run_kernel(kernels, of, path, r.promised, options);
  };
  // What there is when a kernel fails is kept too.
  struct Keep {
    Trace* trace;
    Batch& batch;
    Outputs& outputs;
    LawTrace& law;
    ~Keep() {
      if (trace) *trace = {std::move(batch), std::move(outputs), {}, {}, {}, {}, std::move(law), {}};
    }
  } const keep{trace, batch, outputs, law};
  if (r.law != nullptr) {
    const Law& row = *rows_.at(static_cast<std::size_t>(r.law - laws.data()));
    return judge_law(row, {batch, family, r.promised, r.chunk, runner, trace ? &law : nullptr});
  }
  outputs = runner(batch, r.path(batch.shape.T));
  return judge_batch(r, family, batch, outputs, runner);
}

void RecurrentSystem::replay(const Resolved& r, const KernelChoice& kernels, const RunOptions& options,
                             Trace& trace) const {
  trace.outputs = run_kernel(kernels, trace.batch, r.path(trace.batch.shape.T), r.promised, options);
}

RunFile RecurrentSystem::write(const Resolved& r, const Trace& trace) const { return family_file(r, trace); }

Judgement RecurrentSystem::judge(const Resolved& r, const RunFile& file) const {
  return judge_family_file(r, family, file);
}

bool RecurrentSystem::evaluates(const Resolved& r, std::string_view kernel_form) const {
  return kernel_form == (r.unchunked() ? "recurrent" : "chunked");
}

const Family& family_of(const Resolved& r) {
  const auto* system = dynamic_cast<const RecurrentSystem*>(r.system);
  if (system == nullptr) throw Error(fmt::format("{} is none of the recurrent family", r.c.system));
  return system->family;
}

}  // namespace samestate

#include "harness/explain/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "harness/explain/explain_contract.h"
#include "harness/explain/explain_head.h"
#include "harness/explain/explain_parts.h"
#include "harness/explain/explain_tensors.h"
#include "harness/run/judge_batch.h"
#include "harness/systems/recurrent_system.h"
#include "oracles/contracts.h"

namespace samestate {
namespace {

void show_bound(Explanation& out, const Resolved& r, const Family& family, const Batch& batch,
                const HeadDifference& d) {
  const Sequence<double> x = sequence_of(batch, d.sequence, d.head);
  if (x.tokens() == 0) return;
  const Path path = path_of_sequence(r.path(batch.shape.T), batch.shape, d.sequence);
  const HeadOracle oracle = oracle_of(x, path, r.promised, family, batch.shape.l2norm);
  const Bound bound = bound_of(x, path, r.promised, family, oracle.policy.mode, batch.shape.l2norm);
  if (d.worst_token >= 0) {
    const Index t = d.worst_token;
    out.terms.push_back({"error of the row", (d.o.row(t) - d.exact.o.row(t)).norm()});
    out.terms.push_back({"Bp: predicted, before the output", bound.before_output(t)});
    out.terms.push_back({"lambda: factor of Bp", oracle.policy.lambda});
    out.terms.push_back({"Bc: error of the decay", bound.coherent(t)});
    out.terms.push_back({"R: rounding of the output", bound.output_rounding(t)});
    out.terms.push_back({"tolerance, the least of both:", oracle.row(t)});
    out.terms.push_back({"hard: worst case", oracle.row_hard(t)});
  } else {
    out.terms.push_back({"error of the state", (d.state - d.exact.state).norm()});
    out.terms.push_back({"tolerance of the state", oracle.state});
    out.terms.push_back({"worst case", oracle.state_hard});
  }
}

/// Contracts of the same formats of inputs, state and output under which just these outputs pass, and whose roundings made
/// the errors: what a row declares may be wrong, and not the kernel.
std::vector<ContractHint> contracts_that_fit(const Resolved& r, const Family& family, const Batch& batch,
                                             const Outputs& outputs) {
  std::vector<ContractHint> hints;
  for (const NamedContract& other : contracts()) {
    const Contract& c = other.contract;
    if (c.name == r.c.contract || c.input != r.contract->input || c.output != r.contract->output ||
        c.state != r.contract->state)
      continue;
    Case as = r.c;
    as.contract = c.name;
    const Judgement j = judge_batch(Resolved(as), family, batch, outputs, kFilePolicy, {});
    if (j.verdict != Verdict::pass || !has_size_of_roundings(j)) continue;
    hints.push_back(
        {c.name, fmt::format("the same outputs pass under contract {} (ratio {:.2g}): roundings of its",
                             c.name, j.ratio)});
  }
  return hints;
}

/// Returns the partitions into chunks, or no partition, under which exactly these outputs pass: a kernel with
/// a partition of its own has the errors of that partition (optimized/kernel.h, Arguments::chunk). Empty if
/// there is none, or if the form has no chunks.
std::string partitions_that_fit(const Resolved& r, const Family& family, const Batch& batch,
                                const Outputs& outputs) {
  if (r.form == nullptr || !r.form->chunked || r.form->decodes) return "";
  std::vector<std::string> names;
  const auto passes = [&](const Case& as) {
    return judge_batch(Resolved(as), family, batch, outputs, kFilePolicy, {}).verdict == Verdict::pass;
  };
  for (const Index chunk : {16, 32, 64, 128, 256}) {
    Case as = r.c;
    as.chunk = chunk;
    if (chunk != r.c.chunk && std::min(chunk, as.T) != std::min(r.c.chunk, as.T) && passes(as))
      names.push_back(fmt::format("chunk={}", chunk));
  }
  if (!r.form->packed) {
    Case as = r.c;
    as.form = "recurrent";
    as.chunk = Case{}.chunk;
    as.ranks = 1, as.cuts = Case{}.cuts;
    if (passes(as)) names.emplace_back("form=recurrent");
  }
  if (names.empty()) return "";
  return fmt::format("the same outputs pass with {}: a partition of its own belongs into the kernel's limits",
                     fmt::join(names, ", "));
}

/// Returns true if the errors look like those of roundings: they are in all heads, in most of their elements,
/// and not a constant factor.
bool looks_rounded(const Explanation& e, const std::vector<HeadDifference>& heads) {
  if (std::ranges::any_of(e.patterns, [](const std::string& x) { return x.find(" times ") != x.npos; }))
    return false;
  RoundingShape shape;
  for (const HeadDifference& d : heads) {
    shape.add(d.exact.o, d.o);
    shape.add(d.exact.state, d.state);
  }
  return shape.of_roundings();
}

/// `native` is the form of the kernel that ran; a form without chunks has no partition.
void add_fits(Explanation& out, const Resolved& r, const Family& family, const Batch& batch,
              const Outputs& outputs, const std::string& native) {
  // Rounding neither multiplies everything by one factor nor makes errors in a few places only.
  if (looks_rounded(out, head_differences(r, family, batch, outputs)))
    out.contracts = contracts_that_fit(r, family, batch, outputs);
  std::string partitions = native == "recurrent" ? "" : partitions_that_fit(r, family, batch, outputs);
  if (!partitions.empty()) out.patterns.push_back(std::move(partitions));
}

}  // namespace

Explanation RecurrentSystem::explain(const Resolved& r, const Trace& trace) const {
  if (r.law != nullptr) return explain_law(r, family, trace);
  Explanation out;
  if (trace.outputs.empty()) return out;
  const Batch of = batch(r, trace.inputs, trace.given);
  const Outputs outputs = outputs_of(trace.outputs);
  const std::vector<HeadDifference> heads = head_differences(r, family, of, outputs);
  const HeadDifference* worst = show_differences(out, r, heads);
  if (worst == nullptr) {  // right everywhere, and too often off: another rounding, or the same elsewhere
    if (judge_batch(r, family, of, outputs, kFilePolicy, {}).verdict == Verdict::fail) {
      out.patterns = factor_patterns(heads, true, sums_gates(r));
      add_fits(out, r, family, of, outputs, trace.native);
    }
    return out;
  }
  // The values say more about the cause than their places, and people read only a few patterns.
  constexpr std::size_t kMostPatterns = 6;
  out.patterns = mistakes(r, family, of, heads);
  for (auto& more : {value_patterns(r, outputs, heads), place_patterns(r, heads)}) {
    out.patterns.insert(out.patterns.end(), more.begin(), more.end());
  }
  if (out.patterns.size() > kMostPatterns) out.patterns.resize(kMostPatterns);
  add_fits(out, r, family, of, outputs, trace.native);
  show_bound(out, r, family, of, *worst);
  return out;
}

Explanation TensorSystem::explain(const Resolved& r, const Trace& trace) const {
  if (r.law != nullptr) return explain_tensor_law(r, *this, trace);
  return is_end_to_end(r) ? explain_tensors(end_to_end(r, trace.native), *this, end_to_end(r, trace))
                          : explain_tensors(r, *this, trace);
}

Explanation explain(const Resolved& r, const Trace& trace) { return r.system->explain(r, trace); }

}  // namespace samestate

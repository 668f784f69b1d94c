#include "harness/explain/explain.h"

#include "harness/cases/operator_case.h"
#include "harness/cases/systems.h"
#include "harness/explain/explain_head.h"
#include "harness/explain/explain_parts.h"
#include "harness/run/judge_batch.h"

namespace samestate {
namespace {

void show_bound(Explanation& out, const Case& c, const Batch& batch, const HeadDifference& d) {
  const Sequence<double> x = sequence_of(batch, d.sequence, d.head);
  if (x.tokens() == 0) return;
  const Path path = path_of(c, x.tokens());
  const Family& family = *system_named(c.system).family;
  const HeadOracle oracle = oracle_of(x, path, contract_of(c), family, batch.shape.l2norm);
  const Bound bound = bound_of(x, path, contract_of(c), family, oracle.policy.mode, batch.shape.l2norm);
  if (d.worst_token >= 0) {
    const Index t = d.worst_token;
    out.terms.push_back({"error of the row", (d.o.row(t) - d.exact.o.row(t)).norm()});
    out.terms.push_back({"Bp before the output", bound.before_output(t)});
    out.terms.push_back({"lambda", oracle.policy.lambda});
    out.terms.push_back({"Bc coherent decay", bound.coherent(t)});
    out.terms.push_back({"R output rounding", bound.output_rounding(t)});
    out.terms.push_back({"tolerance of the row", oracle.row(t)});
    out.terms.push_back({"worst case", oracle.row_hard(t)});
  } else {
    out.terms.push_back({"error of the state", (d.state - d.exact.state).norm()});
    out.terms.push_back({"tolerance of the state", oracle.state});
    out.terms.push_back({"worst case", oracle.state_hard});
  }
}

Explanation explain_family(const Case& c, const Trace& trace) {
  Explanation out;
  if (trace.outputs.final_state.empty()) return out;
  const std::vector<HeadDifference> heads = head_differences(c, trace.batch, trace.outputs);
  const HeadDifference* worst = show_differences(out, c, heads);
  if (worst == nullptr) return out;
  out.patterns = mistakes(c, trace.batch, heads);
  for (auto& more : {place_patterns(c, heads), value_patterns(c, trace.outputs, heads)}) {
    out.patterns.insert(out.patterns.end(), more.begin(), more.end());
  }
  show_bound(out, c, trace.batch, *worst);
  return out;
}

}  // namespace

Explanation explain(const Case& c, const Trace& trace) {
  if (is_operator_case(c)) return explain_operator(c, trace);
  return c.law.empty() ? explain_family(c, trace) : explain_law(c, trace);
}

}  // namespace samestate

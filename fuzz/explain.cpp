#include "fuzz/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "fuzz/explain_head.h"
#include "fuzz/judge_batch.h"
#include "fuzz/operator_case.h"
#include "fuzz/systems.h"
#include "oracles/contracts.h"
#include "oracles/operators/judge_operator.h"

namespace samestate {
namespace {

constexpr Index kValues = 6;  // shown beside each other

/// Up to kValues columns around `worst`.
std::pair<Index, Index> window(Index worst, Index columns) {
  const Index begin = std::clamp<Index>(worst - kValues / 2, 0, std::max<Index>(columns - kValues, 0));
  return {begin, std::min(begin + kValues, columns)};
}

Index worst_column(const Matrix<double>& exact, const Matrix<double>& actual, Index row) {
  Index worst = 0;
  double largest = -1.0;
  for (Index j = 0; j < exact.cols(); ++j) {
    const double e = std::abs(exact(row, j) - actual(row, j));
    const double error = std::isnan(e) ? std::numeric_limits<double>::infinity() : e;
    if (error > largest) largest = error, worst = j;
  }
  return worst;
}

void show_row(Explanation& out, const std::string& place, const char* column, const Matrix<double>& exact,
              const Matrix<double>& actual, Index row) {
  const auto [begin, end] = window(worst_column(exact, actual, row), exact.cols());
  for (Index j = begin; j < end; ++j) {
    out.values.push_back({fmt::format("{}, {} {}", place, column, j), exact(row, j), actual(row, j)});
  }
}

std::string where(const Case& c, const HeadDifference& d) {
  std::string text = fmt::format("sequence {}, head {}: ", d.sequence, d.head);
  if (d.tokens.empty()) return text + "the final state";
  const Index t = d.tokens.front();
  text += fmt::format("o from token {} on", t);
  if (!runs_recurrent_only(c) && c.chunk > 0 && c.form != "parallel" &&
      (c.form != "decode" || t < c.prefill)) {
    text += fmt::format(" (chunk {}, its token {})", t / c.chunk, t % c.chunk);
  }
  text += fmt::format(", {} of {} tokens: {}", d.tokens.size(), d.o.rows(), ranges_text(d.tokens));
  return text + (d.state_wrong ? "; and the final state" : "");
}

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
  if (!c.law.empty() || trace.outputs.final_state.empty()) return out;
  const std::vector<HeadDifference> heads = head_differences(c, trace.batch, trace.outputs);
  const HeadDifference* worst = nullptr;
  std::size_t wrong = 0;
  for (const HeadDifference& d : heads) {
    if (d.tokens.empty() && !d.state_wrong) continue;
    if (++wrong <= 4) out.differs.push_back(where(c, d));
    if (worst == nullptr || d.worst_ratio > worst->worst_ratio) worst = &d;
  }
  if (worst == nullptr) return out;
  if (wrong > 4) out.differs.push_back(fmt::format("and {} more of {} heads", wrong - 4, heads.size()));
  out.patterns = mistakes(c, trace.batch, heads);
  for (auto& more : {place_patterns(c, heads), value_patterns(c, trace.outputs, heads)}) {
    out.patterns.insert(out.patterns.end(), more.begin(), more.end());
  }
  const std::string at = fmt::format("sequence {}, head {}", worst->sequence, worst->head);
  if (worst->worst_token >= 0) {
    show_row(out, fmt::format("o: {}, token {}", at, worst->worst_token), "channel", worst->exact.o, worst->o,
             worst->worst_token);
  } else {
    Index row = 0;
    (worst->state - worst->exact.state).rowwise().norm().maxCoeff(&row);
    show_row(out, fmt::format("final_state: {}, row {}", at, row), "column", worst->exact.state, worst->state,
             row);
  }
  show_bound(out, c, trace.batch, *worst);
  return out;
}

/// One output of one sequence of an operator's run.
struct TensorDifference {
  std::string name;
  Index sequence = 0;
  std::vector<Index> rows;  ///< wrong ones
  std::set<Index> columns;
  Index wrong = 0;
  double worst = 0.0;
  Index worst_row = 0;
};

TensorDifference difference_of(const std::string& name, Index b, const Matrix<double>& exact,
                               const Matrix<double>& tolerance, const Matrix<double>& actual) {
  TensorDifference d;
  d.name = name;
  d.sequence = b;
  for (Index r = 0; r < exact.rows(); ++r) {
    bool row_wrong = false;
    for (Index j = 0; j < exact.cols(); ++j) {
      if (!std::isfinite(tolerance(r, j))) continue;
      const double error = std::abs(actual(r, j) - exact(r, j));
      const double ratio = std::isnan(error) ? std::numeric_limits<double>::infinity()
                           : error == 0.0    ? 0.0
                                             : error / tolerance(r, j);
      if (ratio > d.worst) d.worst = ratio, d.worst_row = r;
      if (ratio <= 1.0) continue;
      row_wrong = true;
      ++d.wrong;
      d.columns.insert(j);
    }
    if (row_wrong) d.rows.push_back(r);
  }
  return d;
}

void tensor_patterns(Explanation& out, const Case& c, const TensorDifference& d, Index tokens,
                     const Matrix<double>& exact, const Matrix<double>& actual) {
  const auto say = [&](const std::string& what) { out.patterns.push_back(d.name + ": " + what); };
  const bool finite = actual.allFinite();
  if (!finite) say("some values are NaN, infinite or were never written");
  if (finite && actual.isZero(0)) say("all zero");
  const double factor = constant_factor(exact, actual);
  if (!std::isnan(factor)) say(fmt::format("the right values times {:.6g}", factor));
  if (exact.rows() == exact.cols() && exact.rows() > 1 &&
      (actual.transpose() - exact).norm() <= (1.0 - kExplainedShare) * (actual - exact).norm()) {
    say("transposed");
  }
  if (std::ssize(d.columns) < exact.cols()) {
    say("only column(s) " + ranges_text({d.columns.begin(), d.columns.end()}));
  }
  if (tokens == 0 || exact.rows() % tokens != 0) return;
  const Index each = exact.rows() / tokens;
  std::set<Index> wrong;
  for (const Index r : d.rows) wrong.insert(r / each);
  const auto all = [&](auto&& test) { return std::all_of(wrong.begin(), wrong.end(), test); };
  say(fmt::format("from token {} on, {} of {} tokens: {}", *wrong.begin(), wrong.size(), tokens,
                  ranges_text({wrong.begin(), wrong.end()})));
  const Index C = c.chunk;
  if (c.form == "decode") {
    if (c.prefill > 0 && *wrong.begin() >= c.prefill) say("only after the resume");
  } else if (find_operator(c.system)->form(c.form)->chunked && C > 1 && tokens > C) {
    if (all([&](Index t) { return t % C == 0; })) say("only the first token of a chunk");
    if (tokens % C != 0 && all([&](Index t) { return t >= tokens - tokens % C; }))
      say("only the last, partial chunk");
    if (*wrong.begin() >= C) say("the first chunk is right");
  }
}

Explanation explain_operator(const Case& c, const Trace& trace) {
  Explanation out;
  if (trace.operator_outputs.empty()) return out;
  const Operator& op = *find_operator(c.system);
  const Call call = call_of(c, trace.operator_form);
  const Signature signature = op.signature(call);
  std::vector<TensorDifference> found;
  std::vector<OperatorOracle> oracles;
  for (Index b = 0; b < c.B; ++b) {
    oracles.push_back(operator_oracle(op, call, operator_sequence(trace.operator_inputs, b), cuts_of(c),
                                      contract_named(c.contract)));
    for (const auto& [name, exact] : oracles.back().exact) {
      TensorDifference d = difference_of(name, b, exact, get(oracles.back().tolerance, name),
                                         get(trace.operator_outputs[static_cast<std::size_t>(b)], name));
      if (d.wrong == 0) continue;
      out.differs.push_back(fmt::format("{} of sequence {}: {} of {} elements in {} row(s): {}", name, b,
                                        d.wrong, exact.size(), d.rows.size(), ranges_text(d.rows)));
      found.push_back(std::move(d));
    }
  }
  if (found.empty()) return out;
  const TensorDifference& worst = *std::max_element(
      found.begin(), found.end(), [](const auto& x, const auto& y) { return x.worst < y.worst; });
  const OperatorOracle& oracle = oracles[static_cast<std::size_t>(worst.sequence)];
  const Matrix<double>& exact = get(oracle.exact, worst.name);
  const Matrix<double>& actual =
      get(trace.operator_outputs[static_cast<std::size_t>(worst.sequence)], worst.name);
  Index tokens = 0;
  for (const TensorSpec& spec : signature.outputs) {
    if (spec.name == worst.name && spec.axis == Axis::tokens) tokens = c.T;
  }
  tensor_patterns(out, c, worst, tokens, exact, actual);
  if (c.B > 1) {
    std::set<Index> sequences;
    for (const TensorDifference& d : found) sequences.insert(d.sequence);
    if (std::ssize(sequences) < c.B) {
      out.patterns.push_back("only sequence(s) " + ranges_text({sequences.begin(), sequences.end()}) +
                             fmt::format(" of {}", c.B));
    }
  }
  show_row(out, fmt::format("{}: sequence {}, row {}", worst.name, worst.sequence, worst.worst_row), "column",
           exact, actual, worst.worst_row);
  const Index column = worst_column(exact, actual, worst.worst_row);
  out.terms.push_back({"error", std::abs(exact(worst.worst_row, column) - actual(worst.worst_row, column))});
  out.terms.push_back(
      {"running error of the form", get(oracle.tolerance, worst.name)(worst.worst_row, column)});
  return out;
}

}  // namespace

Explanation explain(const Case& c, const Trace& trace) {
  return is_operator_case(c) ? explain_operator(c, trace) : explain_family(c, trace);
}

}  // namespace samestate

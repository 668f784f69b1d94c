/// Oracle and tolerances of a head, with which judge.cpp compares a kernel's outputs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "oracles/bounds/few_rows.h"
#include "oracles/bounds/repeated_roundings.h"
#include "oracles/bounds/truncation_bias.h"
#include "oracles/contracts.h"
#include "oracles/head_bound.h"
#include "oracles/judge.h"
#include "oracles/reasons.h"
#include "oracles/stretch.h"

namespace samestate {
namespace {

/// Makes an oracle vacuous if its tolerance is not small compared with the expected values.
void ask_for_size(HeadOracle& out) {
  // If the scale is 0, o is zero apart from values that underflow, and only the state is judged.
  constexpr double kUnderflow = 0x1p-120;  // of a row of some thousand elements
  const double tolerance = root_mean_square(out.row);
  const double size = root_mean_square(out.exact.o.rowwise().norm());
  if (out.row.size() > 0 && !(tolerance <= std::max(kVacuousRows * size, kUnderflow))) {
    out.vacuous = true;
    out.why_vacuous = size > 0 ? fmt::format("tolerance is {:.2g} of the output's size, more than {}",
                                             tolerance / size, kVacuousRows)
                               : "the expected output is all zero";
  }
}

}  // namespace

HeadOracle oracle_of(const Sequence<double>& x, const Path& path, const Contract& contract,
                     const Family& family, bool l2norm) {
  return oracle_of_stretch(x, path, contract, family, l2norm, nullptr);
}

HeadOracle oracle_of_stretch(const Sequence<double>& x, const Path& path, const Contract& contract,
                             const Family& family, bool l2norm, const StateError* carried_in) {
  const bool chunked_somewhere =
      std::any_of(path.begin(), path.end(), [](const Segment& s) { return s.chunk > 0 && s.tokens > 0; });
  HeadOracle out;
  out.exact = family.recurrent(x);
  out.policy = policy_for(chunked_somewhere ? contract : recurrent_contract(contract), x,
                          chunked_somewhere ? "chunked" : "recurrent", l2norm);
  const Bound hard = bound_of_stretch(x, path, contract, family, Mode::det, l2norm, carried_in);
  Bound soft = out.policy.mode == Mode::det
                   ? hard
                   : bound_of_stretch(x, path, contract, family, out.policy.mode, l2norm, carried_in);

  const Index T = x.tokens();
  const Path parts = part_by_part(path);
  const TruncationBias bias = truncation_bias(x, parts, contract, family.delta);
  const double of_state =
      out.policy.state_mode == out.policy.mode
          ? soft.state_tolerance(out.policy.state_factor)
          : bound_of_stretch(x, path, contract, family, out.policy.state_mode, l2norm, carried_in)
                .state_tolerance(out.policy.state_factor);
  // The worst case already adds up all errors.
  const RepeatedRoundings repeated = out.policy.mode == Mode::det
                                         ? RepeatedRoundings{Vector<double>::Zero(T), Vector<double>::Zero(0)}
                                         : repeated_roundings(x, parts, contract, family.delta);
  const double state = bias.state + std::hypot(of_state, out.policy.state_factor * repeated.state.norm());
  soft.before_output = soft.before_output.cwiseAbs2().eval() + repeated.rows.cwiseAbs2();
  soft.before_output = soft.before_output.cwiseSqrt().eval();

  out.row.resize(T);
  out.row_hard.resize(T);
  for (Index i = 0; i < T; ++i) {
    out.row_hard(i) = hard.row_tolerance(i, 1.0);
    out.row(i) = std::min(soft.row_tolerance(i, out.policy.lambda) + bias.rows(i), out.row_hard(i));
  }
  out.bias = bias.rows;
  out.rms = soft.rms;
  out.repeated = repeated.rows;
  out.state_rms = soft.state_rows;
  out.state_hard = hard.state_tolerance(1.0);
  out.state = std::min(state, out.state_hard);
  out.largest = soft.largest;
  out.overflow_expected = !(soft.largest < largest_format_value(contract) / kRangeMargin);

  if (soft.vacuous && hard.vacuous) {
    out.vacuous = true;
    out.why_vacuous = fmt::format("the bound does not hold here (nonlinearity {:.3g})", soft.nonlinearity);
  } else {
    ask_for_size(out);
  }
  return out;
}

HeadOracle last_tokens(HeadOracle oracle, const Sequence<double>& x, Index begin) {
  const Index T = x.tokens() - begin;
  for (Vector<double>* const rows :
       {&oracle.row, &oracle.row_hard, &oracle.rms, &oracle.repeated, &oracle.bias}) {
    if (rows->size() > 0) *rows = rows->tail(T).eval();
  }
  oracle.exact.o = oracle.exact.o.bottomRows(T).eval();
  if (oracle.exact.delta.rows() > T) oracle.exact.delta = oracle.exact.delta.bottomRows(T).eval();
  if (T < kHeadTokens || T * x.value_width() < kHeadElements)
    oracle.policy.head_limit = std::max(oracle.policy.head_limit, few_rows_limit(static_cast<double>(T)));
  const bool holds = oracle.row.allFinite();
  if (oracle.vacuous && !holds) return oracle;
  oracle.vacuous = false;
  oracle.why_vacuous.clear();
  ask_for_size(oracle);
  return oracle;
}

HeadOracle exact_oracle_of(const Sequence<double>& x, const Path& path, const Contract& contract,
                           const Family& family, bool l2norm) {
  HeadOracle out;
  out.exact = family.recurrent(x);
  // Without tokens nothing is computed, so the state's covariance, of size key width squared, is not needed.
  if (x.tokens() > 0) out.largest = bound_of(x, path, contract, family, Mode::det, l2norm).largest;
  return out;
}

}  // namespace samestate

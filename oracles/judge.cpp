#include "oracles/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "oracles/bounds/few_rows.h"
#include "oracles/contracts.h"
#include "oracles/directions.h"
#include "oracles/head_bound.h"
#include "oracles/numbers.h"
#include "oracles/reasons.h"
#include "oracles/rounding.h"

namespace samestate {
namespace {

/// 0/0 is not an error; any error over a zero tolerance, and a value that is not finite over any tolerance,
/// counts as infinite.
double ratio_of(double error, double tolerance) {
  if (!std::isfinite(error)) return kInfinity;
  if (error == 0.0) return 0.0;
  return tolerance > 0.0 ? error / tolerance : kInfinity;
}

double median(Vector<double> x) {
  if (x.size() == 0) return 0.0;
  double* middle = x.data() + x.size() / 2;
  std::nth_element(x.data(), middle, x.data() + x.size());
  return *middle;
}

Vector<double> ratios(const Vector<double>& error, const Vector<double>& tolerance) {
  Vector<double> r(error.size());
  for (Index i = 0; i < r.size(); ++i) r(i) = ratio_of(error(i), tolerance(i));
  return r;
}

/// Index of the largest entry; 0 if there is none.
Index argmax(const Vector<double>& x) {
  Index at = 0;
  for (Index i = 1; i < x.size(); ++i) {
    if (x(i) > x(at)) at = i;
  }
  return at;
}

/// The column where two rows differ most; a NaN differs most of all.
Index worst_column(const Eigen::RowVectorXd& a, const Eigen::RowVectorXd& b) {
  Index at = 0;
  double most = -1;
  for (Index c = 0; c < a.size(); ++c) {
    const double d = std::abs(a(c) - b(c));
    if (std::isnan(d)) return c;
    if (d > most) most = d, at = c;
  }
  return at;
}

void point_at_row(Judgement& j, const Matrix<double>& expected, const Matrix<double>& actual, Index token) {
  j.worst.token = token;
  j.worst.channel = worst_column(expected.row(token), actual.row(token));
  j.expected = expected(token, j.worst.channel);
  j.actual = actual(token, j.worst.channel);
}

/// Where two matrices differ most; a NaN differs most of all.
Index worst_row(const Matrix<double>& a, const Matrix<double>& b) {
  Index at = 0;
  double most = -1.0;
  for (Index i = 0; i < a.rows(); ++i) {
    const Index c = worst_column(a.row(i), b.row(i));
    const double d = std::abs(a(i, c) - b(i, c));
    if (std::isnan(d)) return i;
    if (d > most) most = d, at = i;
  }
  return at;
}

/// A gate on the state has "state" as the last word of its name: its place is a row of the state, not a
/// token.
struct Gate {
  const char* name;
  double ratio, error, bound;
  Index token;  ///< the place that it refers to; -1 for the state
};

/// True if values that are not finite come after a token whose worst case is known and so large that a
/// product of two such errors leaves the range of fp32: with repeated keys an inverse by doubling produces
/// these although its exact values are small. Large data have large errors too, but none that exceed the
/// range of the kernel's values by so much.
bool may_overflow_on_the_way(const HeadOracle& oracle, const Matrix<double>& o) {
  constexpr double kRootOfTheLargest = 0x1p64;
  const double most = kRootOfTheLargest * std::max(1.0, oracle.largest);
  for (Index i = 0; i < o.rows(); ++i) {
    if (std::isfinite(oracle.row_hard(i)) && oracle.row_hard(i) > most) return true;
    if (!o.row(i).allFinite()) return false;
  }
  return false;
}

/// The policy's limit, or that for as few rows as dominate the prediction.
double head_limit(const HeadOracle& oracle, const Vector<double>& rms) {
  const double squares = rms.squaredNorm();
  const double rows = squares > 0 ? squares * squares / rms.array().pow(4).sum() : 0.0;
  return rows > 0 && rows < kFewRows ? std::max(oracle.policy.head_limit, few_rows_limit(rows))
                                     : oracle.policy.head_limit;
}

}  // namespace

double head_bound(const HeadOracle& oracle) {
  if (!oracle.policy.head_gate) return kInfinity;
  const Vector<double> rms =
      oracle.repeated.size() == 0
          ? oracle.rms
          : Vector<double>((oracle.rms.cwiseAbs2() + oracle.repeated.cwiseAbs2()).cwiseSqrt());
  return head_limit(oracle, rms) * root_mean_square(rms) + root_mean_square(oracle.bias);
}

Judgement judge_head(const HeadOracle& oracle, const Matrix<double>& o, const Matrix<double>& state) {
  Judgement j;
  const Vector<double> error = (o - oracle.exact.o).rowwise().norm();
  const double state_error = (state - oracle.exact.state).norm();
  const Vector<double> row_ratios = ratios(error, oracle.row);
  const Vector<double> hard_ratios = ratios(error, oracle.row_hard);
  const Index row = argmax(row_ratios);
  const Index hard = argmax(hard_ratios);
  const double rms_error = root_mean_square(error);
  const double of_head = head_bound(oracle);
  const double state_hard_ratio = ratio_of(state_error, oracle.state_hard);

  j.rows = error.size();
  j.row_ratio = error.size() ? row_ratios(row) : 0.0;
  j.head_ratio = oracle.policy.head_gate && error.size() ? ratio_of(rms_error, of_head) : 0.0;
  j.state_ratio = ratio_of(state_error, oracle.state);
  j.hard_ratio = std::max(error.size() ? hard_ratios(hard) : 0.0, state_hard_ratio);
  j.median_ratio = median(row_ratios);
  j.relative_rms = ratio_of(rms_error, root_mean_square(oracle.exact.o.rowwise().norm()));

  const bool finite = o.allFinite() && state.allFinite();
  if (!finite && oracle.overflow_expected) {
    j.verdict = Verdict::vacuous;
    j.gate = "range";
    j.reason = fmt::format("overflow is expected: a value of {:.3g} does not fit the contract's formats",
                           oracle.largest);
    return j;
  }

  if (!finite && may_overflow_on_the_way(oracle, o)) {
    j.verdict = Verdict::vacuous;
    j.gate = "range";
    j.reason = kOverflowsOnTheWay;
    return j;
  }

  std::vector<Gate> gates;
  if (error.size()) {
    gates.push_back({"row", j.row_ratio, error(row), oracle.row(row), row});
    gates.push_back({"head", j.head_ratio, rms_error, of_head, worst_row(oracle.exact.o, o)});
    gates.push_back({"hard", hard_ratios(hard), error(hard), oracle.row_hard(hard), hard});
  }
  gates.push_back({"state", j.state_ratio, state_error, oracle.state, -1});
  // A vacuous statistical bound proves nothing either way; the worst case still does.
  if (oracle.vacuous) {
    std::erase_if(gates, [](const Gate& g) { return std::string_view(g.name) != "hard"; });
    gates.push_back({"hard state", state_hard_ratio, state_error, oracle.state_hard, -1});
  }
  if (!finite) {
    const Index bad = o.allFinite() ? -1 : argmax(hard_ratios);
    // Inserted at the front, because among equal ratios the first is named.
    gates.insert(gates.begin(), {bad < 0 ? "range state" : "range", kInfinity, kInfinity, 0.0, bad});
  }
  const Gate& worst = *std::max_element(gates.begin(), gates.end(),
                                        [](const Gate& a, const Gate& b) { return a.ratio < b.ratio; });
  j.gate = worst.name;
  j.ratio = worst.ratio;
  j.error = worst.error;
  j.bound = worst.bound;
  if (worst.token >= 0) {
    point_at_row(j, oracle.exact.o, o, worst.token);
  } else {
    point_at_row(j, oracle.exact.state, state, worst_row(oracle.exact.state, state));
  }

  if (j.ratio > 1.0) {
    j.verdict = Verdict::fail;
    const bool proof = j.hard_ratio > 1.0;
    j.reason = !finite ? "output is not finite although every exact value fits"
                       : fmt::format("{} gate: error {:.3g} > {:.3g}{}", j.gate, j.error, j.bound,
                                     proof ? " (beyond the worst case: no rounding of the contract)" : "");
  } else if (oracle.vacuous) {
    j.verdict = Verdict::vacuous;
    if (oracle.exact.o.rows() > 0 && oracle.exact.o.isZero(0)) j.gate = kZeroGate;
    j.reason = oracle.why_vacuous;
  } else if (oracle.exact.o.isZero(0) && oracle.exact.state.isZero(0)) {
    j.verdict = Verdict::vacuous;
    j.gate = kZeroGate;
    j.reason = "the expectation is all zero: a kernel that computes nothing would pass";
  } else {
    j.verdict = Verdict::pass;
  }
  return j;
}

Judgement judge_exact(const HeadOracle& oracle, const Contract& contract, const Matrix<double>& o,
                      const Matrix<double>& state) {
  Judgement j;
  j.gate = "exact";
  j.rows = o.rows();
  const auto held = [](const Matrix<double>& x, Format format) {
    return x.unaryExpr([format](double v) { return round_to(v, format); }).eval();
  };
  // Values that underflow in the oracle (a reset by e^-150) are zero in every format.
  const auto flushed = [](const Matrix<double>& x) {
    return x.unaryExpr([](double v) { return std::abs(v) < 0x1p-40 ? 0.0 : v; }).eval();
  };
  const Matrix<double> exact_o = flushed(oracle.exact.o);
  const Matrix<double> exact_state = flushed(oracle.exact.state);
  const double integers = largest_integer(contract);
  if (held(exact_o, contract.output) != exact_o || held(exact_state, contract.state) != exact_state ||
      !(oracle.largest <= integers)) {
    j.verdict = Verdict::vacuous;
    j.reason = "the exact regime left the integers that the contract represents";
    return j;
  }
  const Matrix<double> difference = (o - exact_o).cwiseAbs();
  const Matrix<double> state_difference = (state - exact_state).cwiseAbs();
  const auto wrong = [](const Matrix<double>& d) { return !(d.array() == 0.0).all(); };
  if (wrong(difference) || wrong(state_difference)) {
    j.verdict = Verdict::fail;
    j.ratio = j.row_ratio = kInfinity;
    const bool in_o = wrong(difference);
    if (!in_o) j.gate = "exact state";
    const Matrix<double>& d = in_o ? difference : state_difference;
    for (Index i = 0; i < d.rows(); ++i) {
      if ((d.row(i).array() == 0.0).all()) continue;
      point_at_row(j, in_o ? exact_o : exact_state, in_o ? o : state, i);
      break;
    }
    j.error = std::abs(j.actual - j.expected);
    j.reason = fmt::format("exact arithmetic: {} is {} and must be {}", in_o ? "o" : "the state", j.actual,
                           j.expected);
    return j;
  }
  const bool nothing = exact_o.isZero(0) && exact_state.isZero(0);
  j.verdict = nothing ? Verdict::vacuous : Verdict::pass;
  if (nothing) {
    j.gate = kZeroGate;
    j.reason = "the expectation is all zero: a kernel that computes nothing would pass";
  }
  return j;
}

Judgement judge_twin(const HeadOracle& oracle, const Contract& contract, const TwinRuns& runs,
                     const Matrix<double>& all_o) {
  Judgement j;
  j.gate = "twin";
  std::vector<Index> counted;
  for (Index i = 0; i < all_o.rows(); ++i) {
    if (oracle.rms(i) >= kTwinMargin * runs.order(i)) counted.push_back(i);
  }
  j.rows = std::ssize(counted);
  if (j.rows < kTwinTokens || j.rows * all_o.cols() < kTwinElements || oracle.vacuous) {
    j.verdict = Verdict::unsupported;
    j.reason = "too few rows whose error is more than the order of fp32 sums makes, or no bound";
    return j;
  }
  const Matrix<double> o = all_o(counted, Eigen::all);
  const Matrix<double> twin = runs.twin(counted, Eigen::all);
  const Matrix<double> exact = oracle.exact.o(counted, Eigen::all);
  // The reordered twin sets the limits, and an infinite one would let anything pass.
  if (!runs.reordered.allFinite() || (!runs.twin.allFinite() && oracle.overflow_expected)) {
    j.verdict = Verdict::unsupported;
    j.reason = "the twin overflows here";
    return j;
  }
  if (!runs.twin.allFinite()) {
    j.verdict = Verdict::fail;
    j.ratio = j.twin_ratio = j.error = kInfinity;
    j.reason = "the twin of contract " + contract.name +
               " overflows and the kernel does not: a format that the contract declares is missing";
    return j;
  }
  const Vector<double> bound = oracle.rms(counted);
  const auto norms = [](const Matrix<double>& x) -> Vector<double> { return x.rowwise().norm(); };

  const bool tf32 = of_tf32(contract);
  const double kMaxLimit = 2.0 * std::sqrt(3.0);
  const Vector<double> distance = norms(o - twin);
  const Vector<double> d = ratios(distance, bound);
  // The difference between kernels that round alike: the twin compared with itself with its sums in another
  // order.
  const Vector<double> free = norms(runs.reordered(counted, Eigen::all) - twin);
  const double error = root_mean_square(ratios(norms(twin - exact), bound));
  // Neither is larger than what fp32 sums cause if the declared roundings hit numbers that are already
  // representable; B counts half an ulp for each of them.
  Vector<double> order(j.rows);
  for (Index i = 0; i < j.rows; ++i) order(i) = runs.order(counted[static_cast<std::size_t>(i)]);
  const double part =
      std::hypot(root_mean_square(ratios(free, bound)), root_mean_square(ratios(order, bound)));
  const double median_limit =
      std::max(tf32 ? kTwinMedianTf32 : kTwinMedian, kTwinSpread * median(ratios(free, bound)));
  // An independent part of size s moves a norm of 1 by s^2 / 2, or by s if it is larger, and by its
  // projection.
  const double moved = error > 0 ? std::min(part * part / error, part) : part;
  const double rms_allowed =
      (tf32 ? kTwinRmsTf32 : kTwinRms) * error + 2 * (moved + part / std::sqrt(static_cast<double>(j.rows)));

  const Vector<double> single_limit = kMaxLimit * bound;
  const double widest = std::max(1.0, kTwinSpread * ratios(free, single_limit).maxCoeff());
  const Vector<double> single = ratios(distance, single_limit * widest);
  const Index worst = argmax(single);
  const double kernel_error = root_mean_square(ratios(norms(o - exact), bound));
  const double scale = error > 0 ? error : 1.0;
  const double rms = kernel_error / scale;
  const double rms_limit = rms_allowed / scale;
  // With keys on one line and beta near 2, one rounding that falls the other way is passed on to every later
  // row, undamped: half of the rows then contain one number, in few directions, and the rows before it equal
  // the twin's. A rounding that no contract has occurs in the first rows too, and in a separate direction for
  // each row.
  const Index before = std::find_if(d.begin(), d.end(), [](double x) { return x != 0.0; }) - d.begin();
  const auto of = [&](const Matrix<double>& x) {
    Directions directions;
    directions.add(bound.cwiseInverse().asDiagonal() * x);
    return directions.count();
  };
  const bool turned =
      d.allFinite() && median(d) > median_limit &&
      (runs.of_states ? of(o - twin) < kTwinTurnedOfStates * of(twin - exact)
                      : static_cast<double>(before) >= kTwinTurned && of(o - twin) < kTwinTurned);
  const double middle = turned ? 0.0 : median(d);

  // If all rows repeat a few errors, their RMS is a statistic of few numbers: a single rounding that falls
  // the other way changes it by any factor.
  const double deviation = runs.repeated_keys ? 0.0 : std::abs(kernel_error - error) / scale;
  // The statistic nearest to its limit decides: error and bound are its values, and the gate says which it
  // is.
  struct Statistic {
    const char* gate;
    double ratio, error, bound;
  };
  const Statistic statistics[] = {
      {"twin", single(worst), distance(worst), single_limit(worst) * widest},
      {"twin median", middle / median_limit, middle, median_limit},
      {"twin RMS", ratio_of(deviation, rms_limit), deviation, rms_limit},
  };
  const Statistic* most = statistics;
  for (const Statistic& s : statistics) {
    // A statistic that is NaN decides.
    if (s.ratio > most->ratio || (std::isnan(s.ratio) && !std::isnan(most->ratio))) most = &s;
  }
  j.gate = most->gate;
  j.ratio = std::isnan(most->ratio) ? kInfinity : most->ratio;
  j.error = std::isnan(most->error) ? kInfinity : most->error;
  j.bound = most->bound;
  j.twin_ratio = j.ratio;
  point_at_row(j, twin, o, worst);
  j.worst.token = counted[static_cast<std::size_t>(worst)];
  j.verdict = j.ratio > 1.0 ? Verdict::fail : Verdict::pass;
  if (j.verdict == Verdict::fail) {
    j.reason = fmt::format(
        "differs from the twin of contract {}: median d/B {:.3g} (limit {:.3g}), worst row {:.3g} of its "
        "limit, RMS error {:.4g} times the twin's (limit 1 +- {:.3g}): {}",
        contract.name, middle, median_limit, single(worst), rms, rms_limit,
        kernel_error < error - rms_allowed
            ? fmt::format(
                  "{}; contract={} is the one to paste for a kernel that rounds less, `samestate repro` "
                  "looks for one that has its roundings",
                  kMoreExact, nearest_card(contract.name))
        : kernel_error > error + rms_allowed
            ? "a rounding that the contract does not declare"
            : "a rounding that the contract does not declare, or one it declares is missing");
  }
  return j;
}

Judgement judge_pair(const Matrix<double>& o1, const Vector<double>& tolerance1, const Matrix<double>& o2,
                     const Vector<double>& tolerance2) {
  Judgement j;
  j.rows = o1.rows();
  if (o1.rows() == 0) {
    j.verdict = Verdict::vacuous;
    j.reason = "nothing was compared";
    return j;
  }
  const Vector<double> tolerance = tolerance1 + tolerance2;
  Matrix<double> difference = o1 - o2;
  Index neither = -1;  // a row in which neither is finite
  for (Index i = 0; i < o1.rows(); ++i) {
    for (Index c = 0; c < o1.cols(); ++c) {
      if (std::isfinite(o1(i, c)) || std::isfinite(o2(i, c))) continue;
      difference(i, c) = 0.0;
      if (neither < 0) neither = i;
    }
  }
  const Vector<double> error = difference.rowwise().norm();
  if (!tolerance.allFinite()) {
    j.verdict = Verdict::vacuous;
    j.reason = "a bound is vacuous";
    return j;
  }
  const Vector<double> r = ratios(error, tolerance);
  const Index at = argmax(r);
  j.ratio = j.row_ratio = r(at);
  j.median_ratio = median(r);
  j.error = error(at);
  j.bound = tolerance(at);
  point_at_row(j, o1, o2, at);
  j.verdict = j.ratio > 1.0 ? Verdict::fail : Verdict::pass;
  if (j.verdict == Verdict::fail) {
    j.reason = fmt::format("the two runs differ by {:.3g}, more than the sum of their bounds {:.3g}", j.error,
                           j.bound);
  } else if (neither >= 0) {
    j.verdict = Verdict::fail;
    j.ratio = j.row_ratio = j.error = kInfinity;
    j.bound = tolerance(neither);
    j.reason = kBothNotFinite;
    point_at_row(j, o1, o2, neither);
  }
  return j;
}

void merge(Judgement& worst, const Judgement& other) {
  const auto rank = [](const auto& j) {
    switch (j.verdict) {
      case Verdict::fail:
        return 3;
      case Verdict::vacuous:
        return 2;
      case Verdict::pass:
        return 1;
      default:
        return 0;
    }
  };
  const auto worse_of = [&](const auto& a, const auto& b) {
    return rank(b) > rank(a) || (rank(b) == rank(a) && b.ratio > a.ratio);
  };
  const bool worse = worse_of(worst, other);
  Judgement kept = worse ? other : worst;
  kept.stages = worst.stages;
  for (const StageFinding& found : other.stages) {
    const auto same = std::find_if(kept.stages.begin(), kept.stages.end(),
                                   [&](const StageFinding& of) { return of.stage == found.stage; });
    if (same == kept.stages.end())
      kept.stages.push_back(found);
    else if (worse_of(*same, found))
      *same = found;
  }
  kept.row_ratio = std::max(worst.row_ratio, other.row_ratio);
  kept.head_ratio = std::max(worst.head_ratio, other.head_ratio);
  kept.state_ratio = std::max(worst.state_ratio, other.state_ratio);
  kept.hard_ratio = std::max(worst.hard_ratio, other.hard_ratio);
  kept.twin_ratio = std::max(worst.twin_ratio, other.twin_ratio);
  kept.sampled_ratio = std::max(worst.sampled_ratio, other.sampled_ratio);
  kept.median_ratio = std::max(worst.median_ratio, other.median_ratio);
  kept.relative_rms = std::max(worst.relative_rms, other.relative_rms);
  kept.rows = worst.rows + other.rows;
  if (kept.held == 0) {
    const Judgement& left = worse ? worst : other;
    kept.held = left.held, kept.held_of = left.held_of, kept.held_which = left.held_which;
  }
  worst = std::move(kept);
}

}  // namespace samestate

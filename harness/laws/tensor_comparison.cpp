#include "harness/laws/tensor_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "oracles/limits.h"
#include "oracles/reasons.h"
#include "oracles/systems/in_doubt.h"
#include "oracles/systems/judge_samples.h"

namespace samestate::tensor_laws_detail {

void Comparison::begin(Change change, std::string first, std::string second, Index place) {
  if (trace_) trace_->push_back({change, std::move(first), std::move(second), place, {}, {}});
}

void Comparison::add(Index b, const std::string& name, Index rows, const Side& first, const Side& second,
                     Index begin) {
  const Matrix<double>& x = get(first.outputs, name);
  const Matrix<double>& y = get(second.outputs, name);
  const Matrix<double>& tolerance_x = get(first.oracle.tolerance, name);
  const Matrix<double>& tolerance_y = get(second.oracle.tolerance, name);
  if (trace_) {
    const auto kept = [&](const Matrix<double>& all) {
      return begin == 0 ? all : Matrix<double>(all.middleRows(begin, rows - begin));
    };
    trace_->back().pairs.push_back({name,
                                    b,
                                    rows - begin,
                                    {kept(x), kept(get(first.oracle.exact, name)), kept(tolerance_x)},
                                    {kept(y), kept(get(second.oracle.exact, name)), kept(tolerance_y)}});
  }
  const auto place = [this](const OperatorOracle& oracle, const std::string& of, Index i, Index j) {
    return by_head_ ? Location{-1, i, j, -1} : oracle.place(of, i, j);
  };
  const bool points = first.oracle.points || second.oracle.points;
  for (Index i = begin; i < rows; ++i) {
    double squares = 0.0, bounds = 0.0, largest = 0.0;  // sums over the row
    for (Index j = 0; j < x.cols(); ++j) {
      const double bound = tolerance_x(i, j) + tolerance_y(i, j);
      if (!std::isfinite(bound)) continue;
      if (!std::isfinite(x(i, j)) && !std::isfinite(y(i, j))) {
        ++compared_;
        if (not_finite_++ > 0) continue;
        first_not_finite_.bound = bound;
        first_not_finite_.expected = x(i, j);
        first_not_finite_.actual = y(i, j);
        first_not_finite_.worst = place(first.oracle, name, i, j);
        first_not_finite_.worst.sequence = b;
        where_not_finite_ = name;
        continue;
      }
      const double difference = std::abs(x(i, j) - y(i, j));
      const double error = std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
      const double ratio = error == 0.0 ? 0.0 : error / bound;
      ++compared_;
      squares += y(i, j) * y(i, j);
      bounds += bound * bound;
      largest = std::max(largest, error);
      if (!where_.empty() && ratio <= worst_.ratio) continue;
      worst_.ratio = ratio;
      worst_.error = error;
      worst_.bound = bound;
      worst_.expected = x(i, j);
      worst_.actual = y(i, j);
      worst_.worst = place(first.oracle, name, i, j);
      worst_.worst.sequence = b;
      where_ = name;
    }
    squares_ += squares;
    bounds_ += bounds;
    // Without rounding points, wide bounds may not let a difference pass that is as large as a fault of
    // kWideTolerance causes (in_doubt.h).
    const double size = std::sqrt(squares / static_cast<double>(std::max<Index>(x.cols(), 1)));
    const bool hides = !points && bounds > kWideTolerance * kWideTolerance * squares &&
                       largest > std::max(kLargeShare * kWideTolerance * size, kLeastError);
    if (hides && doubt_.empty()) doubt_ = fmt::format("output {}, row {}", name, i);
  }
}

void Comparison::add_by_head(Index b, const std::string& name, const Side& first, const Side& second) {
  by_head_ = true;
  add(b, name, get(first.outputs, name).rows(), first, second);
  by_head_ = false;
}

Judgement Comparison::take(const std::string& what) {
  worst_.gate = "law";
  worst_.rows = compared_;
  if (compared_ == 0) {
    worst_.reason = "nothing was compared, because no element has a finite bound";
  } else if (worst_.ratio > 1.0) {
    worst_.verdict = Verdict::fail;
    worst_.reason = fmt::format("output {}: {}", where_, what);
  } else if (not_finite_ > 0) {
    first_not_finite_.verdict = Verdict::fail;
    first_not_finite_.gate = "law";
    first_not_finite_.rows = compared_;
    first_not_finite_.ratio = first_not_finite_.error = std::numeric_limits<double>::infinity();
    first_not_finite_.reason = fmt::format("output {}: {}", where_not_finite_, kBothNotFinite);
    return first_not_finite_;
  } else if (squares_ == 0.0) {
    worst_.gate = kZeroGate;
    worst_.reason = "everything compared is zero";
  } else if (bounds_ > kVacuousOutput * kVacuousOutput * squares_) {
    worst_.reason = fmt::format("the sum of the bounds is above {} of what is compared", kVacuousOutput);
  } else if (!doubt_.empty()) {
    worst_.gate = kInDoubtGate;
    worst_.reason = fmt::format(
        "{}: the sum of the bounds is above {} of its size, and the two runs differ by more than {} of it",
        doubt_, kWideTolerance, kLargeShare * kWideTolerance);
  } else {
    worst_.verdict = Verdict::pass;
  }
  return worst_;
}

OperatorOracle oracle_of(const TensorSubject& s, const std::vector<CaseTensor>& inputs, Index b,
                         const std::vector<Index>& cuts) {
  const Call call = s.system.call(s.r.c, s.native);
  const Tensors<double> of = sequence_of(inputs, b);
  OperatorOracle oracle = operator_oracle(s.system.row, call, of, cuts, *s.r.contract);
  if (s.samples > 0 && oracle.points) {
    oracle.tolerance =
        sampled_tolerances(oracle, sample_errors(s.system.row, call, of, cuts, *s.r.contract, oracle,
                                                 s.r.c.seed, s.first_sample, s.samples));
  }
  // A law compares sequences, and a sum over them belongs to none.
  for (const TensorSpec& output : s.system.row.signature(call).outputs) {
    if (output.axis == Axis::whole) oracle.exact.erase(output.name), oracle.tolerance.erase(output.name);
  }
  return oracle;
}

std::vector<OperatorOracle> oracles_of(const TensorSubject& s, const std::vector<CaseTensor>& inputs,
                                       const std::vector<Index>& cuts) {
  std::vector<OperatorOracle> out;
  for (Index b = 0; b < s.r.c.B; ++b) out.push_back(oracle_of(s, inputs, b, cuts));
  return out;
}

Resolved resized(const Resolved& r, std::int64_t B, std::int64_t T) {
  Resolved other = r;
  other.c.B = B;
  other.c.T = T;
  return other;
}

}  // namespace samestate::tensor_laws_detail

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "harness/systems/tensor_system.h"
#include "oracles/limits.h"

/// Laws of the systems of named tensors. Each compares runs of one kernel with each other, element by element
/// within the sum of their running errors (BOUNDS 10.2): what is wrong in both runs alike passes here, and not
/// against the oracle.
namespace samestate {
namespace {

/// Judgements of many comparisons, as one.
class Comparison {
 public:
  /// The rows [0, rows) of an output of two runs of sequence b.
  void add(Index b, const std::string& name, Index rows, const Matrix<double>& x, const Matrix<double>& y,
           const Matrix<double>& tolerance_x, const Matrix<double>& tolerance_y) {
    for (Index i = 0; i < rows; ++i) {
      for (Index j = 0; j < x.cols(); ++j) {
        const double bound = tolerance_x(i, j) + tolerance_y(i, j);
        if (!std::isfinite(bound)) continue;
        const double difference = std::abs(x(i, j) - y(i, j));
        const double error = std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
        const double ratio = error == 0.0 ? 0.0 : error / bound;
        ++compared_;
        squares_ += y(i, j) * y(i, j);
        bounds_ += bound * bound;
        if (compared_ > 1 && ratio <= worst_.ratio) continue;
        worst_.ratio = ratio;
        worst_.error = error;
        worst_.bound = bound;
        worst_.expected = x(i, j);
        worst_.actual = y(i, j);
        worst_.worst = {b, -1, i, j};
        where_ = name;
      }
    }
  }
  /// `what` was compared, in words.
  [[nodiscard]] Judgement take(const std::string& what) {
    worst_.gate = "law";
    worst_.rows = compared_;
    if (compared_ == 0) {
      worst_.reason = "nothing was compared: no element has a finite bound";
    } else if (worst_.ratio > 1.0) {
      worst_.verdict = Verdict::fail;
      worst_.reason = fmt::format("output {}: {}", where_, what);
    } else if (squares_ == 0.0) {
      worst_.reason = "everything compared is zero";
    } else if (bounds_ > kVacuousOutput * kVacuousOutput * squares_) {
      worst_.reason = fmt::format("the sum of the bounds is above {} of what is compared", kVacuousOutput);
    } else {
      worst_.verdict = Verdict::pass;
    }
    return worst_;
  }

 private:
  Judgement worst_;
  std::int64_t compared_ = 0;
  double squares_ = 0.0, bounds_ = 0.0;
  std::string where_;
};

OperatorOracle oracle_of(const TensorSubject& s, const std::vector<CaseTensor>& inputs, Index b,
                         const std::vector<Index>& cuts) {
  return operator_oracle(s.system.row, s.system.call(s.r.c, s.native), sequence_of(inputs, b), cuts,
                         *s.r.contract);
}

/// The first tokens of a sequence, its middle and its end.
std::vector<Index> cuts_worth_trying(Index tokens, Index chunk) {
  const Index c = chunk > 0 ? chunk : 8;
  std::set<Index> cuts;
  for (const Index t : {Index{1}, c - 1, c, c + 1, tokens / 2, tokens - 1}) {
    if (t > 0 && t < tokens) cuts.insert(t);
  }
  return {cuts.begin(), cuts.end()};
}

Judgement inapplicable(const char* why) {
  Judgement j;
  j.gate = "law";
  j.reason = why;
  return j;
}

// EQ-03, P-09: any cut with the states carried gives one pass.
Judgement split(const TensorSubject& s) {
  if (s.r.c.T < 2) return inapplicable("fewer than two tokens");
  Comparison comparison;
  const std::vector<Tensors<double>> one = s.run(s.inputs, {});
  for (const Index cut : cuts_worth_trying(s.r.c.T, s.r.chunk)) {
    const std::vector<Tensors<double>> two = s.run(s.inputs, {cut});
    for (Index b = 0; b < s.r.c.B; ++b) {
      const OperatorOracle whole = oracle_of(s, s.inputs, b, {});
      const OperatorOracle parts = oracle_of(s, s.inputs, b, {cut});
      for (const auto& [name, tolerance] : whole.tolerance) {
        const auto at = static_cast<std::size_t>(b);
        comparison.add(b, name, tolerance.rows(), get(one[at], name), get(two[at], name), tolerance,
                       get(parts.tolerance, name));
      }
    }
  }
  return comparison.take("all tokens in one call, and cut in two with the state carried");
}

// P-07: outputs before t do not depend on tokens from t on.
Judgement causality(const TensorSubject& s) {
  if (s.r.c.T < 2) return inapplicable("fewer than two tokens");
  Comparison comparison;
  const Signature signature = s.system.signature(s.r.c);
  const std::vector<Tensors<double>> before = s.run(s.inputs, {});
  bool effect = false;
  for (const Index t : cuts_worth_trying(s.r.c.T, s.r.chunk)) {
    std::vector<CaseTensor> changed = s.inputs;
    for (CaseTensor& x : changed) {
      if (x.spec.axis != Axis::tokens && x.spec.axis != Axis::prefix) continue;
      if (x.spec.content != Content::activation && x.spec.content != Content::features) continue;
      const Index each = x.spec.size() / s.r.c.T;
      for (Index b = 0; b < s.r.c.B; ++b) {
        for (Index i = t * each; i < s.r.c.T * each; ++i) {
          float& value = x.data[static_cast<std::size_t>(b * x.spec.size() + i)];
          // Halving keeps every format; the sign stays where a feature map must be positive.
          value *= x.spec.content == Content::features ? 0.5F : -0.5F;
        }
      }
    }
    const std::vector<Tensors<double>> after = s.run(changed, {});
    for (Index b = 0; b < s.r.c.B; ++b) {
      const OperatorOracle of_before = oracle_of(s, s.inputs, b, {});
      const OperatorOracle of_after = oracle_of(s, changed, b, {});
      const auto at = static_cast<std::size_t>(b);
      for (const TensorSpec& spec : signature.outputs) {
        const Matrix<double>& x = get(before[at], spec.name);
        const Matrix<double>& y = get(after[at], spec.name);
        effect = effect || x != y;
        if (spec.axis != Axis::tokens) continue;
        comparison.add(b, spec.name, t * (x.rows() / s.r.c.T), x, y, get(of_before.tolerance, spec.name),
                       get(of_after.tolerance, spec.name));
      }
    }
  }
  Judgement j = comparison.take("the tokens as they are, and with later ones changed");
  if (!effect && j.verdict == Verdict::pass) {
    j.verdict = Verdict::vacuous;
    j.reason = "the changed future changed nothing at all";
  }
  return j;
}

// P-08: rows of a batch do not meet.
Judgement batch_permutation(const TensorSubject& s) {
  const Index B = s.r.c.B;
  if (B < 2) return inapplicable("B=1: nothing to permute");
  std::vector<CaseTensor> turned = s.inputs;
  for (std::size_t i = 0; i < turned.size(); ++i) {
    if (!turned[i].batched) continue;
    const auto size = static_cast<std::ptrdiff_t>(turned[i].spec.size());
    for (Index b = 0; b < B; ++b)
      std::copy_n(s.inputs[i].data.begin() + (B - 1 - b) * size, size, turned[i].data.begin() + b * size);
  }
  const std::vector<Tensors<double>> one = s.run(s.inputs, {});
  const std::vector<Tensors<double>> other = s.run(turned, {});
  Comparison comparison;
  for (Index b = 0; b < B; ++b) {
    const OperatorOracle oracle = oracle_of(s, s.inputs, b, {});
    for (const auto& [name, tolerance] : oracle.tolerance) {
      comparison.add(b, name, tolerance.rows(), get(one[static_cast<std::size_t>(b)], name),
                     get(other[static_cast<std::size_t>(B - 1 - b)], name), tolerance, tolerance);
    }
  }
  return comparison.take("a batch, and its rows in reverse order");
}

bool streams(const Operator& row) { return row.streams; }

constexpr TensorLaw kLaws[] = {
    {{"split", "EQ-03 P-09", "cut anywhere, carry the states, resume = one pass"}, streams, split},
    {{"causality", "P-07", "outputs before t do not depend on tokens from t on"}, streams, causality},
    {{"batch_permutation", "P-08", "rows of a batch do not meet"},
     [](const Operator&) { return true; },
     batch_permutation},
};

}  // namespace

std::span<const TensorLaw> tensor_laws() { return kLaws; }

}  // namespace samestate

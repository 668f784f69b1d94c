#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "harness/systems/tensor_system.h"
#include "oracles/limits.h"

/// Laws of the systems of named tensors. Each compares runs of one kernel with each other, element by element
/// within the sum of their running errors (BOUNDS 10.2): what is wrong in both runs alike passes here, and not
/// against the oracle.
namespace samestate {
namespace {

using Change = TensorLawComparison::Change;

/// An output of one sequence of a run beside what it is held against.
struct Side {
  const Tensors<double>& outputs;
  const OperatorOracle& oracle;
};

/// Judgements of many comparisons, as one.
class Comparison {
 public:
  explicit Comparison(TensorLawTrace* trace) : trace_(trace) {}

  /// Two runs, in words; `place` as in TensorLawComparison.
  void begin(Change change, std::string first, std::string second, Index place = -1) {
    if (trace_) trace_->push_back({change, std::move(first), std::move(second), place, {}});
  }
  /// The rows [0, rows) of an output of sequence b of the two.
  void add(Index b, const std::string& name, Index rows, const Side& first, const Side& second) {
    const Matrix<double>& x = get(first.outputs, name);
    const Matrix<double>& y = get(second.outputs, name);
    const Matrix<double>& tolerance_x = get(first.oracle.tolerance, name);
    const Matrix<double>& tolerance_y = get(second.oracle.tolerance, name);
    if (trace_) {
      trace_->back().pairs.push_back({name,
                                      b,
                                      rows,
                                      {x, get(first.oracle.exact, name), tolerance_x},
                                      {y, get(second.oracle.exact, name), tolerance_y}});
    }
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
  TensorLawTrace* trace_;
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
  Comparison comparison(s.trace);
  const std::vector<Tensors<double>> one = s.run(s.inputs, {});
  for (const Index cut : cuts_worth_trying(s.r.c.T, s.r.chunk)) {
    const std::vector<Tensors<double>> two = s.run(s.inputs, {cut});
    comparison.begin(Change::calls, "all tokens in one call",
                     fmt::format("cut before token {}, the states carried", cut), cut);
    for (Index b = 0; b < s.r.c.B; ++b) {
      const OperatorOracle whole = oracle_of(s, s.inputs, b, {});
      const OperatorOracle parts = oracle_of(s, s.inputs, b, {cut});
      const auto at = static_cast<std::size_t>(b);
      for (const auto& [name, tolerance] : whole.tolerance)
        comparison.add(b, name, tolerance.rows(), {one[at], whole}, {two[at], parts});
    }
  }
  return comparison.take("all tokens in one call, and cut in two with the state carried");
}

// P-07: outputs before t do not depend on tokens from t on.
Judgement causality(const TensorSubject& s) {
  if (s.r.c.T < 2) return inapplicable("fewer than two tokens");
  Comparison comparison(s.trace);
  const Signature signature = s.system.signature(s.r.c);
  const std::vector<Tensors<double>> before = s.run(s.inputs, {});
  bool effect = false;
  for (const Index t : cuts_worth_trying(s.r.c.T, s.r.chunk)) {
    std::vector<CaseTensor> changed = s.inputs;
    std::vector<std::string> names;
    for (CaseTensor& x : changed) {
      if (x.spec.axis != Axis::tokens && x.spec.axis != Axis::prefix) continue;
      if (x.spec.content != Content::activation && x.spec.content != Content::features) continue;
      names.push_back(x.spec.name);
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
    comparison.begin(Change::future, "the tokens as they are",
                     fmt::format("{} of the tokens from {} on halved, signs turned where they may be",
                                 fmt::join(names, ", "), t),
                     t);
    for (Index b = 0; b < s.r.c.B; ++b) {
      const OperatorOracle of_before = oracle_of(s, s.inputs, b, {});
      const OperatorOracle of_after = oracle_of(s, changed, b, {});
      const auto at = static_cast<std::size_t>(b);
      for (const TensorSpec& spec : signature.outputs) {
        const Matrix<double>& x = get(before[at], spec.name);
        const Matrix<double>& y = get(after[at], spec.name);
        effect = effect || x != y;
        if (spec.axis != Axis::tokens) continue;
        comparison.add(b, spec.name, t * (x.rows() / s.r.c.T), {before[at], of_before},
                       {after[at], of_after});
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
  Comparison comparison(s.trace);
  comparison.begin(Change::order, "the rows of the batch in their order", "in reverse order");
  for (Index b = 0; b < B; ++b) {
    const OperatorOracle oracle = oracle_of(s, s.inputs, b, {});
    for (const auto& [name, tolerance] : oracle.tolerance) {
      comparison.add(b, name, tolerance.rows(), {one[static_cast<std::size_t>(b)], oracle},
                     {other[static_cast<std::size_t>(B - 1 - b)], oracle});
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

#include "oracles/systems/in_doubt.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <type_traits>
#include <utility>

#include "oracles/limits.h"
#include "oracles/numbers.h"

namespace samestate {
namespace {

constexpr double kUnit = 0x1p-24;

/// True for numbers that stand for a place, a mask or a count, which a small change would turn into another
/// one or an invalid one.
bool counts(Content content) {
  return content == Content::slot || content == Content::mask || content == Content::no_count;
}

Tensors<double> moved(const Signature& signature, Tensors<double> inputs, std::mt19937_64& engine) {
  for (const TensorSpec& spec : signature.inputs) {
    if (counts(spec.content)) continue;
    Matrix<double>& x = inputs.find(spec.name)->second;
    for (Index i = 0; i < x.size(); ++i)
      x.data()[i] *= 1.0 + kUnit * (static_cast<double>(engine() >> 11U) * 0x1p-52 - 1.0);
  }
  return inputs;
}

/// The rows of one output whose error may be in doubt.
struct Rows {
  const Matrix<double>& exact;
  Matrix<double> error;
  std::vector<Index> rows;
  Vector<double> noise;  ///< sigma_r^2 of all rows
  Vector<double> alike;  ///< the effect on a row if all roundings of one long sum fall to one side
  Vector<bool> wide;

  /// The error as a multiple of the smallest that is in doubt.
  [[nodiscard]] double times(Index r) const {
    const double size = std::max({std::sqrt(noise(r)), alike(r) / kDoubt, kLeastError / kDoubt});
    const double most = error.row(r).cwiseAbs().maxCoeff();
    const double row = std::sqrt(error.row(r).cwiseAbs2().mean());
    // Values that are not finite, or that are not finite after moving the inputs, cannot be compared.
    double times = std::max(row, most / 4.0) / (kDoubt * size);
    if (std::isnan(noise(r))) times = 0.0;
    if (!std::isfinite(row)) return kInfinity;
    // Rows of zeros have no size to compare with.
    const double large = kLargeShare * kWideTolerance * std::sqrt(exact.row(r).cwiseAbs2().mean());
    return wide(r) && large > kLeastError ? std::max(times, most / large) : times;
  }
  void keep_those_in_doubt() {
    std::erase_if(rows, [&](Index r) { return !(times(r) > 1.0); });
  }
};

/// RMS of a row's tolerance divided by that of the expected values.
double share_of_row(const Matrix<double>& tolerance, const Matrix<double>& exact, Index r) {
  const double size = exact.row(r).norm();
  const double most = tolerance.row(r).norm();
  return size > 0.0 ? most / size : most > 0.0 ? kInfinity : 0.0;
}

/// True if each row of each output belongs to a token or is part of a sum over all of them (the gradient of a weight), and
/// no state is carried.
bool all_of_tokens(const Operator& op, const Signature& signature) {
  const auto of_tokens = [](const TensorSpec& x) { return x.axis == Axis::tokens || x.axis == Axis::whole; };
  const auto carried = [](const TensorSpec& x) { return x.axis == Axis::state || x.axis == Axis::prefix; };
  return op.token_wise && std::ranges::all_of(signature.outputs, of_tokens) &&
         std::ranges::none_of(signature.inputs, carried);
}

/// True if the output is a sum over all tokens.
bool sums_tokens(const Signature& signature, std::string_view output) {
  return std::ranges::any_of(signature.outputs,
                             [&](const TensorSpec& x) { return x.name == output && x.axis == Axis::whole; });
}

}  // namespace

std::vector<DoubtfulRow> doubtful_rows(const TwinSubject& of, const Tensors<double>& actual,
                                       std::uint64_t seed, const JudgePolicy& policy) {
  const auto tokens = static_cast<double>(tokens_met(of));
  std::map<std::string, Rows> outputs;
  for (const auto& [name, exact] : of.oracle.exact) {
    if (exact.size() == 0) continue;
    const Matrix<double>& tolerance = get(of.oracle.tolerance, name);
    const Matrix<bool>& undecided = get(of.oracle.undecided, name);
    const Vector<double> squares = exact.cwiseAbs2().rowwise().mean();
    Rows rows{exact,
              get(actual, name) - exact,
              {},
              kUnit * kUnit * squares,
              kUnit * tokens * squares.cwiseSqrt(),
              Vector<bool>::Constant(exact.rows(), false)};
    for (Index r = 0; r < exact.rows(); ++r) {
      const double share = share_of_row(tolerance, exact, r);
      rows.wide(r) = !(share <= kWideTolerance);
      if (!(share <= kRoomOfWorstCase) && !undecided(r, 0)) rows.rows.push_back(r);
    }
    rows.keep_those_in_doubt();
    if (!rows.rows.empty()) outputs.emplace(name, std::move(rows));
  }
  if (outputs.empty()) return {};
  Call canonical = of.call;
  canonical.form = of.op.forms.front().name;
  const Signature signature = of.op.signature(canonical);
  std::mt19937_64 engine(seed);
  for (int m = 0; m < policy.moved_inputs; ++m) {
    const Tensors<double> values = of.op.exact(canonical, moved(signature, of.inputs, engine));
    for (auto& [name, rows] : outputs)
      rows.noise += (get(values, name) - rows.exact).cwiseAbs2().rowwise().mean() / policy.moved_inputs;
  }
  const bool by_token = of.call.tokens > 0 && all_of_tokens(of.op, signature);
  std::vector<DoubtfulRow> found;
  for (auto& [name, rows] : outputs) {
    rows.keep_those_in_doubt();
    const bool alone = by_token && !sums_tokens(signature, name);
    const Index each = alone ? rows.exact.rows() / of.call.tokens : 1;
    for (const Index r : rows.rows)
      found.push_back({name, r, alone ? r / each : -1, rows.times(r), rows.wide(r)});
  }
  std::ranges::stable_sort(found, std::greater<>(), &DoubtfulRow::times);
  return found;
}

std::vector<std::string> wide_outputs(const OperatorOracle& oracle) {
  std::vector<std::string> wide;
  for (const auto& [name, exact] : oracle.exact) {
    const Matrix<double>& tolerance = get(oracle.tolerance, name);
    const Matrix<bool>& undecided = get(oracle.undecided, name);
    double most = 0.0, size = 0.0;
    for (Index r = 0; r < exact.rows(); ++r) {
      if (undecided(r, 0) || oracle.row_may_overflow(name, r)) continue;
      most += tolerance.row(r).squaredNorm();
      size += exact.row(r).squaredNorm();
    }
    if (size > 0.0 && !(most <= kWideTolerance * kWideTolerance * size)) wide.push_back(name);
  }
  return wide;
}

TokensAlone tokens_in_doubt(const TwinSubject& of, const Tensors<double>& actual,
                            const std::vector<DoubtfulRow>& rows, std::size_t most) {
  TokensAlone out{{}, of.call, {}, {}, {}};
  for (const DoubtfulRow& row : rows) {
    if (out.tokens.size() < most && std::ranges::find(out.tokens, row.token) == out.tokens.end())
      out.tokens.push_back(row.token);
  }
  std::ranges::sort(out.tokens);
  const auto of_tokens = [&](const auto& x) {
    const Index each = x.rows() / of.call.tokens;
    std::vector<Index> kept;
    for (const Index t : out.tokens) {
      for (Index r = 0; r < each; ++r) kept.push_back(t * each + r);
    }
    return std::decay_t<decltype(x)>(x(kept, Eigen::all));
  };
  const Signature whole = of.op.signature(of.call);
  out.call.tokens = std::ssize(out.tokens);
  if (of.call.choice != nullptr && of.call.choice->rows() == of.call.tokens)
    out.call.choice = std::make_shared<const Matrix<Index>>(of_tokens(*of.call.choice));
  for (const TensorSpec& spec : of.op.signature(of.call).inputs) {
    const Matrix<double>& x = get(of.inputs, spec.name);
    out.inputs.emplace(spec.name, spec.axis == Axis::tokens ? of_tokens(x) : x);
  }
  out.oracle.points = of.oracle.points;
  out.oracle.axes = of.oracle.axes;
  for (const auto& [name, x] : of.oracle.exact) {
    if (sums_tokens(whole, name)) continue;
    out.oracle.exact.emplace(name, of_tokens(x));
    out.oracle.tolerance.emplace(name, of_tokens(get(of.oracle.tolerance, name)));
    out.oracle.undecided.emplace(name, of_tokens(get(of.oracle.undecided, name)));
    out.actual.emplace(name, of_tokens(get(actual, name)));
  }
  for (const auto& [name, x] : of.oracle.overflows) {
    if (!sums_tokens(whole, name)) out.oracle.overflows.emplace(name, of_tokens(x));
  }
  return out;
}

Index tokens_met(const TwinSubject& of) {
  Index before = 0;
  for (const TensorSpec& spec : of.op.signature(of.call).inputs) {
    if (spec.axis == Axis::prefix) before = std::max(before, get(of.inputs, spec.name).rows());
  }
  return std::max(before, of.call.tokens);
}

bool roundings_repeat(const TwinSubject& of) {
  for (const TensorSpec& spec : of.op.signature(of.call).inputs) {
    const Matrix<double>& x = get(of.inputs, spec.name);
    // A token that is masked is zero from there on.
    if (spec.content == Content::mask && (x.array() == 0.0).count() > kAlikeTokens) return true;
    if ((spec.axis != Axis::tokens && spec.axis != Axis::prefix) || counts(spec.content)) continue;
    std::map<std::vector<double>, int> times;
    for (Index t = 0; t < x.rows(); ++t) {
      const std::vector<double> token(x.row(t).begin(), x.row(t).end());
      if (++times[token] > kAlikeTokens) return true;
    }
  }
  return false;
}

}  // namespace samestate

#include "oracles/bounds/decay.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "oracles/bounds/algebra.h"
#include "oracles/bounds/shared.h"

namespace samestate::bounds {
namespace {

/// Relative error of exp for a given absolute error of its argument. Capped at e^50: far beyond that there is
/// nothing left to bound, and infinity times a flushed 0 would be NaN.
double relative_error(double argument_error) { return std::expm1(std::min(argument_error, 50.0)); }

/// The error of the fp32 cumulative sum G of g, as functions of the two ends.
class ScanError {
 public:
  ScanError(const Vector<double>& g, const Vector<double>& sums, Scan scan, Mode mode, bool rounded_once,
            Log2e log2e)
      : sums_(sums), tree_(scan == Scan::tree), det_(mode == Mode::det), once_(rounded_once), log2e_(log2e) {
    const Index L = g.size();
    prefix_.resize(L);
    double prefix = 0.0;
    for (Index i = 0; i < L; ++i) {
      prefix += det_ ? std::fabs(sums(i)) : sums(i) * sums(i);
      prefix_(i) = prefix;
    }
    levels_ = std::max(1.0, std::ceil(std::log2(std::max(static_cast<double>(L), 2.0))));
    if (!det_) run_twins(g);
  }

  /// The error of G_i; the first sum is g_0 itself and exact.
  [[nodiscard]] double at(Index i) const {
    if (det_ && tree_) return kUnitRoundoff32 * levels_ * std::fabs(sums_(i));
    const double steps = std::max(prefix_(i) - prefix_(0), 0.0);
    if (det_) return kUnitRoundoff32 * std::max(steps, i == 0 || !once_ ? 0.0 : std::fabs(sums_(i)));
    const double size = std::max(steps, i == 0 || !once_ ? 0.0 : sums_(i) * sums_(i));
    return 2 * std::max(std::fabs(sequential_(i)), std::fabs(doubling_(i))) + spread(size);
  }

  /// The largest difference between two fp32 sums of all g: the scan's last one, and one in any order. det:
  /// the errors of both; otherwise the actual errors of the two scans, and the quadrature of roundings, which
  /// is three deviations of a sum in a tree.
  [[nodiscard]] double apart() const {
    const Index last = sums_.size() - 1;
    if (!det_) return at(last);
    const double any_order = kUnitRoundoff32 * static_cast<double>(last) * std::fabs(sums_(last));
    return at(last) + std::max(at(last), any_order);
  }

  /// The error of G_i - G_j.
  [[nodiscard]] double between(Index i, Index j) const {
    const double scaled =
        log2e_ == Log2e::sum && i != j ? kUnitRoundoff32 * (std::fabs(sums_(i)) + std::fabs(sums_(j))) : 0.0;
    if (det_ && tree_) {
      return i == j ? 0.0 : scaled + kUnitRoundoff32 * levels_ * (std::fabs(sums_(i)) + std::fabs(sums_(j)));
    }
    // Covers a sum made from its rounded predecessor, and one that is made exactly (in double, compensated,
    // from blocks) and rounded once at each end: kernels of the contract may use either.
    const double steps = std::fabs(prefix_(i) - prefix_(j));
    if (det_) {
      const double ends = i == j || !once_ ? 0.0 : std::fabs(sums_(i)) + std::fabs(sums_(j));
      return scaled + kUnitRoundoff32 * std::max(steps, ends);
    }
    const double both = sums_(i) * sums_(i) + sums_(j) * sums_(j);
    const double size = (i == j || !once_ ? steps : std::max(steps, both)) + (scaled > 0 ? both : 0.0);
    return 2 * std::max(std::fabs(sequential_(i) - sequential_(j)), std::fabs(doubling_(i) - doubling_(j))) +
           spread(size);
  }

 private:
  static double spread(double squares) { return kUnitRoundoff32 / std::sqrt(3.0) * std::sqrt(squares); }

  /// The fp32 scan in both orders, minus the exact one: a running sum, and doubling x_i += x_{i - d}, d = 1,
  /// 2, 4, ...
  void run_twins(const Vector<double>& g) {
    const Index L = g.size();
    // In units of log2 if log2 e multiplies the gates first.
    constexpr float kLog2e = 1.4426950408889634F;
    const bool first = log2e_ == Log2e::gate;
    const double unit = first ? 1.4426950408889634 : 1.0;
    sequential_.resize(L);
    doubling_.resize(L);
    std::vector<float> sums(g.begin(), g.end());
    if (first) {
      for (float& x : sums) x *= kLog2e;
    }
    float running = 0.0F;
    for (Index i = 0; i < L; ++i) {
      running += sums[static_cast<std::size_t>(i)];
      sequential_(i) = static_cast<double>(running) / unit - sums_(i);
    }
    for (std::size_t d = 1; d < sums.size(); d *= 2) {
      for (std::size_t i = sums.size(); i-- > d;) sums[i] += sums[i - d];
    }
    for (Index i = 0; i < L; ++i) {
      doubling_(i) = static_cast<double>(sums[static_cast<std::size_t>(i)]) / unit - sums_(i);
    }
  }

  const Vector<double>& sums_;
  bool tree_;
  bool det_;
  bool once_;
  Log2e log2e_;
  double levels_ = 1.0;
  Vector<double> prefix_;  ///< sums of |G| (det) or of G^2, up to i
  Vector<double> sequential_;
  Vector<double> doubling_;
};

/// The sums of g if each g below -128 is replaced by any value between itself and -128, but by none below
/// -1024.
class SumError {
 public:
  SumError(const Vector<double>& gates, Scan scan, Mode mode, bool rounded_once, Log2e log2e)
      : least_(gates, kDecayFloor, scan, mode, rounded_once, log2e) {
    if ((gates.array() < kDecayFloor).any())
      most_.emplace(gates, kDeepestFloor, scan, mode, rounded_once, log2e);
  }
  /// With -128 instead of anything below it.
  [[nodiscard]] const Vector<double>& sums() const { return least_.sums; }
  [[nodiscard]] double at(Index i) const {
    return most_ ? std::max(least_.error.at(i), most_->error.at(i)) : least_.error.at(i);
  }
  [[nodiscard]] double apart() const {
    return most_ ? std::max(least_.error.apart(), most_->error.apart()) : least_.error.apart();
  }
  [[nodiscard]] double between(Index i, Index j) const {
    return most_ ? std::max(least_.error.between(i, j), most_->error.between(i, j))
                 : least_.error.between(i, j);
  }

 private:
  struct Floored {
    Floored(const Vector<double>& gates, double floor, Scan scan, Mode mode, bool rounded_once, Log2e log2e)
        : g(gates.cwiseMax(floor)), sums(summed(g)), error(g, sums, scan, mode, rounded_once, log2e) {}
    static Vector<double> summed(const Vector<double>& x) {
      Vector<double> out(x.size());
      std::partial_sum(x.begin(), x.end(), out.begin());
      return out;
    }
    const Vector<double> g, sums;
    const ScanError error;
  };
  Floored least_;
  std::optional<Floored> most_;
};

}  // namespace

double exponential_error(double x, Exponential exponential, const ExponentialModel& model) {
  if (x == 0.0) return 0.0;
  const double units =
      exponential == Exponential::exact ? model.exact : model.ex2 + model.ex2_slope * std::fabs(x);
  return units * kUnitRoundoff32;
}

double exponential_bias(double x, Exponential exponential, const ExponentialModel& model) {
  if (x == 0.0) return 0.0;
  const double units = exponential == Exponential::exact
                           ? model.exact_bias
                           : model.ex2_bias + model.ex2_bias_slope * std::fabs(x);
  return units * kUnitRoundoff32;
}

double flush_error(double value) {
  return value < 4 * kSmallestNormal32 ? std::min(value, kSmallestNormal32) : 0.0;
}

ChunkDecay chunk_decay(const Vector<double>& gates, Exponential exponential, Scan scan, Mode mode,
                       const ExponentialModel& model, Log2e log2e) {
  const Index L = gates.size();
  ChunkDecay decay;
  if ((gates.array() == 0.0).all()) {  // no gate: every decay is exactly 1
    decay.between = Matrix<double>::Ones(L, L).triangularView<Eigen::Lower>();
    decay.between_error = Matrix<double>::Zero(L, L);
    decay.from_start = Vector<double>::Ones(L);
    decay.start_error = Vector<double>::Zero(L);
    decay.start_bias = Vector<double>::Zero(L);
    decay.end_bias = decay.end_error = Vector<double>::Zero(L);
    return decay;
  }
  const SumError error(gates, scan, mode, model.rounded_once, log2e);
  const Vector<double>& sums = error.sums();

  decay.between = Matrix<double>::Zero(L, L);
  decay.between_error = Matrix<double>::Zero(L, L);
  decay.from_start.resize(L);
  decay.start_error.resize(L);
  decay.start_bias.resize(L);
  decay.end_bias.resize(L);
  decay.end_error.resize(L);
  const double apart = model.repeats ? relative_error(error.apart()) : 0.0;
  for (Index i = 0; i < L; ++i) {
    const double start = std::exp(sums(i));
    const double to_end = sums(L - 1) - sums(i);
    decay.start_bias(i) = exponential_bias(sums(i), exponential, model) * start;
    decay.end_bias(i) = (exponential_bias(to_end, exponential, model) + apart) * std::exp(to_end);
    decay.from_start(i) = start;
    decay.start_error(i) =
        relative_error(error.at(i) + exponential_error(sums(i), exponential, model)) * start +
        flush_error(start);
    for (Index j = 0; j <= i; ++j) {
      const double difference = sums(i) - sums(j);
      const double value = std::exp(difference);
      const double relative = relative_error(error.between(i, j) + kUnitRoundoff32 * std::fabs(difference) +
                                             exponential_error(difference, exponential, model));
      decay.between(i, j) = value;
      decay.between_error(i, j) = relative * value + flush_error(value);
    }
  }
  decay.end_error = decay.between_error.row(L - 1).transpose() + apart * decay.between.row(L - 1).transpose();
  return decay;
}

}  // namespace samestate::bounds

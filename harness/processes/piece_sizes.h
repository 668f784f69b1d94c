#pragma once

#include <limits>

namespace samestate {

/// How much work is handed out at a time: a share of what is left, so that pieces start large and get smaller
/// towards the end (guided self-scheduling, Polychronopoulos and Kuck 1987), within limits in seconds. Work
/// is counted in a unit of the caller; the time per unit is measured during the run.
class PieceSizes {
 public:
  static constexpr double kUnknown = std::numeric_limits<double>::infinity();

  /// `work` is that of all jobs, or kUnknown. `places` share it; `jobs` run at once in each.
  PieceSizes(double work, int places, int jobs) : left_(work), places_(places), jobs_(jobs) {}

  /// Work of the next piece; 0 means as much as a place can run at once, because the time per unit is not
  /// known yet.
  [[nodiscard]] double next() const;
  void give(double work) { left_ -= work; }
  void take_back(double work) { left_ += work; }
  /// Reports a job that ended.
  void measure(double work, double seconds) { work_ += work, seconds_ += seconds; }

  /// A piece takes at most this long, so that a lost rank costs no more than that and open jobs fit in
  /// memory; and at least so long that the next one arrives before it ends, even over a slow network.
  static constexpr double kMostSeconds = 2.0;
  static constexpr double kLeastSeconds = 0.02;
  /// Pieces are this much smaller than a fair share of the remaining work.
  static constexpr double kShare = 4.0;

 private:
  double left_;
  int places_, jobs_;
  double work_ = 0.0, seconds_ = 0.0;
};

}  // namespace samestate

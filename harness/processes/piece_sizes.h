#pragma once

#include <limits>

namespace samestate {

/// How much work is handed out at a time: a share of what is left, so that pieces are large first and small at the end
/// (guided self-scheduling, Polychronopoulos and Kuck 1987), between limits in seconds. Work is counted in a unit of the
/// caller's; what a unit takes is measured on the way.
class PieceSizes {
 public:
  static constexpr double kUnknown = std::numeric_limits<double>::infinity();

  /// `work`: of all jobs, kUnknown where nobody knows. `places`: that share it; `jobs`: at a time on each.
  PieceSizes(double work, int places, int jobs) : left_(work), places_(places), jobs_(jobs) {}

  /// Work of the next piece; 0: as much as a place can run at once, for nobody knows yet what a unit takes.
  [[nodiscard]] double next() const;
  void give(double work) { left_ -= work; }
  void take_back(double work) { left_ += work; }
  /// A job that ended.
  void measure(double work, double seconds) { work_ += work, seconds_ += seconds; }

  /// A piece is at most so long, that a rank which is lost costs no more, and that what is open fits in memory; and at
  /// least so long that the next one is there before it ends, however the network is.
  static constexpr double kMostSeconds = 2.0;
  static constexpr double kLeastSeconds = 0.02;
  /// Of what is left for each place: the last pieces are this much smaller than a fair share.
  static constexpr double kShare = 4.0;

 private:
  double left_;
  int places_, jobs_;
  double work_ = 0.0, seconds_ = 0.0;
};

}  // namespace samestate

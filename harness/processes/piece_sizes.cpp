#include "harness/processes/piece_sizes.h"

#include <algorithm>

namespace samestate {

double PieceSizes::next() const {
  if (work_ <= 0.0 || seconds_ <= 0.0) return 0.0;
  const double a_second = jobs_ * work_ / seconds_;
  const double share = std::max(0.0, left_) / (kShare * places_);
  return std::clamp(share, kLeastSeconds * a_second, kMostSeconds * a_second);
}

}  // namespace samestate

#pragma once

#include "harness/records/spent.h"

namespace samestate {

/// Collects what the calls of this thread spent in a process of somebody else's while it lives (Spent).
class CollectSpent {
 public:
  CollectSpent();
  ~CollectSpent();
  CollectSpent(const CollectSpent&) = delete;
  CollectSpent& operator=(const CollectSpent&) = delete;

  [[nodiscard]] const Spent& spent() const { return spent_; }

  /// Adds what one call, or a start, has spent.
  static void note(const Spent& more);

 private:
  Spent spent_;
  CollectSpent* outer_;
};

}  // namespace samestate

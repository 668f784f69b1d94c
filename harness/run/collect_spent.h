#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/records/spent.h"

namespace samestate {

/// While it lives, collects the time that calls on this thread spent in another process (Spent), and what
/// tuners chose there.
class CollectSpent {
 public:
  CollectSpent();
  ~CollectSpent();
  CollectSpent(const CollectSpent&) = delete;
  CollectSpent& operator=(const CollectSpent&) = delete;

  [[nodiscard]] const Spent& spent() const { return spent_; }

  /// Adds the time of one call, or of a start.
  static void note(const Spent& more);

  /// Adds a configuration that a tuner chose for a call, once, under the setting `by`.
  static void note_tuned(std::string_view by, const std::string& configuration);
  /// "first: scan: BLOCK=128; norm: BLOCK=32" (Record::tuned); empty if nothing was tuned.
  [[nodiscard]] std::string tuned() const;

 private:
  Spent spent_;
  std::string by_;
  std::vector<std::string> configurations_;
  CollectSpent* outer_;
};

}  // namespace samestate

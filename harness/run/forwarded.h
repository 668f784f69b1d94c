#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace samestate {

/// Collects, on this thread and while it lives, reports of functions that ran instead of those that were
/// called: a public function may pass its call on to another package, and a foreign kernel reports that
/// together with "ran" (Outcome::reason).
class Forwarded {
 public:
  Forwarded();
  ~Forwarded();
  Forwarded(const Forwarded&) = delete;
  Forwarded& operator=(const Forwarded&) = delete;

  /// Each function once, in the order in which they first ran, separated by ", "; empty if no call was
  /// forwarded.
  [[nodiscard]] std::string text() const;

  /// Reports a call that ran.
  static void note(std::string_view function);

 private:
  std::vector<std::string> functions_;
  Forwarded* outer_;
};

}  // namespace samestate

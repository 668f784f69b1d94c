#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace samestate {

/// Which functions ran in the place of those that were asked for: a public name that hands its call on to another package, as
/// a kernel of somebody else's says beside "ran" (Outcome::reason). Collects what the calls of this thread say while it lives.
class Forwarded {
 public:
  Forwarded();
  ~Forwarded();
  Forwarded(const Forwarded&) = delete;
  Forwarded& operator=(const Forwarded&) = delete;

  /// Each once, in the order in which they first ran, ", " between; empty where none was handed on.
  [[nodiscard]] std::string text() const;

  /// Of a call that ran.
  static void note(std::string_view function);

 private:
  std::vector<std::string> functions_;
  Forwarded* outer_;
};

}  // namespace samestate

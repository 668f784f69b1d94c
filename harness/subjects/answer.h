#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/records/spent.h"

namespace samestate {

/// A subject's answer to a call.
struct SubjectAnswer {
  enum class Kind { ran, unsupported, no_device, error, busy } kind = Kind::ran;
  std::string reason;  ///< its own words, or empty
  std::string trace;   ///< for an error, possibly many lines
  /// For a call that ran: the function that it was forwarded to, if that is not the declared one.
  std::string function;
  /// True if the kernel threw before it launched anything, at `where` ("api.py:123 check").
  bool refusal = false;
  std::string where;
  /// The setting of its tuners ("first", "full") and what they chose in this call, each "kernel: BLOCK=64,
  /// num_warps=4"; empty if nothing was tuned. The message "busy" has them too.
  std::string tuned_by;
  std::vector<std::string> configurations;
  Spent spent;  ///< compile, tune, copy, kernel, compiled and loaded, as it reports them; its imports are
                ///< `start`
  bool fatal = false;  ///< for an error: the process must be restarted
  bool trespass =
      false;  ///< for an error: the kernel touched memory that it must not touch, as `reason` says
  bool environment =
      false;  ///< for an error: the kernel changed the floating-point control bits, as `reason` says
};

/// Reads the line as the answer to call `id`; nothing in it is trusted. Throws Error ("answered .., which
/// ..") if it is not a valid answer.
[[nodiscard]] SubjectAnswer parse_answer(std::string_view line, std::int64_t id);

}  // namespace samestate

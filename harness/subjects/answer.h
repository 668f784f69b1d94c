#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/records/spent.h"

namespace samestate {

/// What a subject says of a call.
struct SubjectAnswer {
  enum class Kind { ran, unsupported, no_device, error, busy } kind = Kind::ran;
  std::string reason;  ///< as it gave it, or empty
  std::string trace;   ///< of an error, many lines
  /// Of a call that ran: what it was handed on to, where that is another function than the declared one.
  std::string function;
  /// True if the kernel threw before it launched anything, at `where` ("api.py:123 check").
  bool refusal = false;
  std::string where;
  /// The setting of its tuners ("first", "full") and what they chose in this call, each "kernel: BLOCK=64, num_warps=4";
  /// empty where nothing was tuned. "busy" has them too.
  std::string tuned_by;
  std::vector<std::string> configurations;
  Spent spent;  ///< compile, tune, copy, kernel, compiled and loaded, as it says; its imports are `start`
  bool fatal = false;  ///< of an error: it is to be started anew
  bool trespass =
      false;  ///< of an error: the kernel touched memory that is not its to touch, as `reason` says
  bool environment =
      false;  ///< of an error: the kernel left other floating-point control bits, as `reason` says
};

/// Reads the line as the answer to call `id`; nothing in it is trusted. Throws Error, "answered .., which ..", for what is
/// none.
[[nodiscard]] SubjectAnswer parse_answer(std::string_view line, std::int64_t id);

}  // namespace samestate

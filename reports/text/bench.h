#pragma once

#include <span>
#include <string>
#include <string_view>

#include "harness/records/timing.h"

/// What `samestate bench` shows.
namespace samestate {

/// For a terminal: a row a case; the rates of the devices; why the peer has no time; each case that did not pass
/// with the command that repeats it.
[[nodiscard]] std::string bench_text(std::span<const TimedCase> all, std::span<const DeviceRates> devices);

/// An array of objects, one a case; what is not a number is null.
[[nodiscard]] std::string bench_json(std::span<const TimedCase> all);

}  // namespace samestate

#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "harness/records/timing.h"

/// The output of `samestate bench`.
namespace samestate {

/// For a terminal of `width` columns (0: of any width): one row per case; the rates of the devices; why the peer gave no
/// time; and each case that did not pass, with the command that repeats it.
[[nodiscard]] std::string bench_text(std::span<const TimedCase> all, std::span<const DeviceRates> devices,
                                     std::size_t width = 0);

/// An array with one object per case; null stands for a missing number.
[[nodiscard]] std::string bench_json(std::span<const TimedCase> all);

}  // namespace samestate

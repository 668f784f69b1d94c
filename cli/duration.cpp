#include "cli/duration.h"

#include <fmt/format.h>

#include <charconv>

#include "reference/error.h"

namespace samestate::cli {

namespace {
constexpr double kLongest = 1e9;  ///< thirty years
}  // namespace

double seconds_of(const std::string& option, const std::string& text) {
  double value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value, std::chars_format::general);
  const std::string_view unit(end, static_cast<std::size_t>(last - end));
  const double factor = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  const double seconds = value * factor;
  const std::string named = option.empty() ? text : fmt::format("{} {}", option, text);
  if ((error != std::errc{} && error != std::errc::result_out_of_range) || factor == 0)
    throw Error(fmt::format("{}: write a time as 90, 90s, 5m or 1.5h", named));
  if (error != std::errc{} || !(seconds >= 0 && seconds <= kLongest))
    throw Error(fmt::format("{}: a time from 0 to {:g} s", named, kLongest));
  return seconds;
}

}  // namespace samestate::cli

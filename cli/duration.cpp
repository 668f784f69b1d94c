#include "cli/duration.h"

#include <fmt/format.h>

#include <charconv>

#include "reference/error.h"

namespace samestate::cli {

double seconds_of(const std::string& option, const std::string& text) {
  double value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value, std::chars_format::general);
  const std::string_view unit(end, static_cast<std::size_t>(last - end));
  const double factor = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  const double seconds = value * factor;
  if (error != std::errc{} || factor == 0 || !(seconds >= 0 && seconds <= 1e9)) {
    throw Error(fmt::format("{} {}: write a time as 90, 90s, 5m or 1.5h", option, text));
  }
  return seconds;
}

}  // namespace samestate::cli

#pragma once

#include <string>

namespace samestate::cli {

/// The seconds in a text such as 90, 90s, 5m or 1.5h. Throws Error that names the option, unless it is empty,
/// and the accepted forms.
[[nodiscard]] double seconds_of(const std::string& option, const std::string& text);

}  // namespace samestate::cli

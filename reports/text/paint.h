#pragma once

#include <string>
#include <string_view>

namespace samestate {

enum class Tone { plain, good, bad, warn, command };

/// Terminal colours, or none: the codes that every terminal supports.
class Paint {
 public:
  explicit Paint(bool on) : on_(on) {}
  [[nodiscard]] std::string operator()(Tone tone, std::string_view text) const {
    if (!on_ || tone == Tone::plain) return std::string(text);
    const char* code = tone == Tone::good   ? "32"
                       : tone == Tone::bad  ? "31;1"
                       : tone == Tone::warn ? "33"
                                            : "2";
    return "\033[" + std::string(code) + "m" + std::string(text) + "\033[0m";
  }

 private:
  bool on_;
};

}  // namespace samestate

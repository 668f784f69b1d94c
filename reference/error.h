#pragma once

#include <stdexcept>
#include <string>

namespace samestate {

/// The one error type of the library: bad input, named with its value, its limit and the remedy.
/// The command turns it into one line and exit code 2; nothing below cli/ prints or exits.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

}  // namespace samestate

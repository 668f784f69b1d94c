#pragma once

#include <stdexcept>
#include <string>

namespace samestate {

/// The library's one error type, for bad input: the message names the value, its limit and the remedy. The
/// command prints it as one line and exits with code 2; nothing below cli/ prints or exits.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

}  // namespace samestate

#pragma once

#include <string>
#include <string_view>

#include "oracles/contracts.h"
#include "reference/error.h"

namespace samestate {

/// Why there is no contract of that text; empty if there is one.
inline std::string contract_error(std::string_view text) {
  try {
    (void)contract_named(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace samestate

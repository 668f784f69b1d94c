#pragma once

#include <string>

namespace samestate {

/// A relation between evaluations of the reference and its result, as plain data for reports.
struct IdentityRow {
  std::string id;         ///< EQ-nn, P-nn, a row of the ledger, or NC-name for a negative control
  std::string name;       ///< unique
  std::string system;     ///< stem of the reference header
  std::string statement;  ///< path A against path B
  std::string expected;   ///< equal, exact, holds, differs
  double in_float64 = 0.0;
  double in_50_digits = 0.0;
  bool passed = false;
};

}  // namespace samestate

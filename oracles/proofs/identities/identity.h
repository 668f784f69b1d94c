#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "oracles/limits.h"

/// Relations between evaluations of the reference itself: the paths of EQUATIONS 6 (EQ-01 .. EQ-28), the
/// invariants of 7.7 (P-01 .. P-26) and the negative controls. Laws (harness/laws/) hold kernels to the same
/// relations; identities show that the mathematics has them.
namespace samestate {

/// The requirement on the residual of an identity.
enum class Expectation {
  equal,   ///< two paths agree up to rounding: at most kIdentityUlps units of the scalar's precision
  exact,   ///< bit for bit: the residual is 0
  holds,   ///< an inequality: the residual is its relative violation, at most kIdentityUlps units
  differs  ///< a negative control, a mistake that must be visible: the residual is at least
           ///< kVisibleDifference
};

/// The residual as a function of the seed of the random data, in both precisions.
struct Residual {
  using Function = double (*)(std::uint64_t seed);

  Residual(Function float64, Function fifty_digits) : in_float64(float64), in_50_digits(fifty_digits) {}
  /// Made from `[]<class Scalar>(std::uint64_t seed) { ... }`, a lambda without captures (groups.h).
  template <class Computation>
  Residual(Computation computation);

  Function in_float64;
  Function in_50_digits;
};

/// One relation. The residual is max|a - b| / max|b| over the compared tensors (draw.h: relative_difference).
struct Identity {
  std::string_view
      id;  ///< EQ-nn, P-nn or rows of the ledger (RMS-5), separated by blanks; NC-name for a negative control
  std::string_view name;       ///< snake_case, unique
  std::string_view system;     ///< stem of the reference header
  std::string_view statement;  ///< one line: path A against path B
  Expectation expectation = Expectation::equal;
  Residual residual;
};

/// The result of evaluating an identity.
struct IdentityResult {
  double in_float64 = 0.0;
  double in_50_digits = 0.0;
  bool passed = false;
};

/// All identities, ordered by id.
[[nodiscard]] std::span<const Identity> identities();

/// The identity of that name, or of an id that only one identity has. Throws Error that lists the names.
[[nodiscard]] const Identity& identity_named(std::string_view name);

/// Evaluates both residuals and compares them with the requirement in each precision: a relation that holds
/// to 1e-15 in float64 but not to 1e-48 in 50 digits is not an identity.
[[nodiscard]] IdentityResult evaluate(const Identity& identity, std::uint64_t seed = 1);

}  // namespace samestate

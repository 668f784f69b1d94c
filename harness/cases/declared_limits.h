#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/cases/system.h"

namespace samestate {

/// The calls that a kernel accepts, as its row declares them (Kernel::limits): conditions that must all hold.
/// Each is a string
///   KEY <= N   KEY >= N   KEY = V   KEY != V   KEY % N = R   KEY in V V ..   KEY in N..M
/// and each optionally followed by `if` and another one: dk <= 128 if contract = bf16. Keys are sizes of the
/// system, properties of a call that the case line has (T, B, chunk, form, contract, state, layout, heads,
/// l2norm, scale; `default` is among its values), `sequences`, `shortest` and `longest` (tokens of the
/// shortest and of the longest sequence), and, for functions that make their own decay, the regime of the
/// data and the law that changes it (`none` if the case is compared with the oracle). N may be a size too. T
/// and chunk are those of one call, so a decoded token has T = 1; form is that of the kernel, or packed.
class DeclaredLimits {
 public:
  /// Without conditions: accepts every call.
  DeclaredLimits() = default;
  /// Throws Error that names the condition, the key or value in it, and the remedy.
  DeclaredLimits(std::span<const std::string> conditions, const System& system);

  /// The first condition that a call with these keys violates; empty if it is within the limits.
  [[nodiscard]] std::string_view broken_by(const Case& call) const;
  [[nodiscard]] bool hold(const Case& call) const { return broken_by(call).empty(); }

  /// The case with its sizes, T, B and chunk moved to the nearest values that the conditions without `if`
  /// accept, one after the other in their order; plans start from there. The caller must check that the
  /// result is a valid case within the limits.
  [[nodiscard]] Case nearest(Case c) const;

  [[nodiscard]] bool none() const { return conditions_.empty(); }
  /// Returns a text such as "dk <= 256, chunk in 1..64", or "none" if there is no condition.
  [[nodiscard]] std::string text() const;

 private:
  enum class Test { at_most, at_least, equal, unequal, remainder, listed, between };
  struct Condition {
    std::string key;
    Test test = Test::equal;
    std::int64_t number = 0, other = 0;  ///< the limit, or divisor and remainder, or both ends
    std::string size;                    ///< for at_most, at_least, equal: the key whose value is the limit
    std::vector<std::string> values;     ///< for equal, unequal, listed: words or numbers
  };
  struct Row {
    std::string text;
    std::vector<Condition> parts;  ///< the condition, followed by the one after `if`
  };
  class Reader;

  [[nodiscard]] static bool holds(const Condition& condition, const Case& call);
  static void move(const Condition& condition, Case& c);

  std::vector<Row> conditions_;
};

/// The value of the key in a call of the case, as its line has it, with defaults by name ("interleaved",
/// "none").
[[nodiscard]] std::string call_value(const Case& call, std::string_view key);

/// Throws Error that names `what`, the key and the available keys if calls of the system have no such key.
void require_call_key(std::string_view key, const System& system, std::string_view what);

}  // namespace samestate

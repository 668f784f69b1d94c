#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>

#include "reference/error.h"

/// Exact counts of the cost model: parameters, elements, bytes, operations. MB is 10^6 bytes (EQUATIONS 1).
namespace samestate::costs {

using Count = std::int64_t;

/// The product of factors that must not be negative. Throws Error if one is, or if the product exceeds 2^63 -
/// 1.
[[nodiscard]] inline Count product(std::initializer_list<Count> factors) {
  Count result = 1;
  for (const Count factor : factors) {
    if (factor < 0) throw Error("count " + std::to_string(factor) + ": must not be negative");
    if (factor != 0 && result > std::numeric_limits<Count>::max() / factor) {
      throw Error("count: " + std::to_string(result) + " x " + std::to_string(factor) +
                  " passes 2^63 - 1; use a smaller configuration");
    }
    result *= factor;
  }
  return result;
}

/// The sum of terms that must not be negative. Throws Error as `product` does.
[[nodiscard]] inline Count sum(std::initializer_list<Count> terms) {
  Count result = 0;
  for (const Count term : terms) {
    if (term < 0) throw Error("count " + std::to_string(term) + ": must not be negative");
    if (result > std::numeric_limits<Count>::max() - term) {
      throw Error("count: " + std::to_string(result) + " + " + std::to_string(term) +
                  " passes 2^63 - 1; use a smaller configuration");
    }
    result += term;
  }
  return result;
}

/// a / b, which must be a whole number. Throws Error if it is not, or if b < 1.
[[nodiscard]] inline Count quotient(Count a, Count b, const std::string& what) {
  if (b < 1 || a % b != 0) {
    throw Error(what + ": " + std::to_string(a) + " is not a multiple of " + std::to_string(b));
  }
  return a / b;
}

/// Throws Error unless `value` >= `least`; `name` is the field of the configuration.
inline void require_at_least(Count value, Count least, const std::string& name) {
  if (value < least) {
    throw Error(name + "=" + std::to_string(value) + ": must be at least " + std::to_string(least));
  }
}

/// The number of weights of a linear map [out, in], and of its bias if it has one.
[[nodiscard]] inline Count linear_parameters(Count in, Count out, bool bias = false) {
  return sum({product({in, out}), bias ? out : 0});
}

/// Bytes in millions, the unit that the documents use.
[[nodiscard]] inline double megabytes(Count bytes) { return static_cast<double>(bytes) / 1e6; }

}  // namespace samestate::costs

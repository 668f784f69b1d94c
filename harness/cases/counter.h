#pragma once

#include <cstdint>
#include <string_view>

namespace samestate {

/// The position of an element. A tensor element is a function of (seed, tensor name, coordinates) alone
/// (DESIGN 4), so shrinking a size leaves the rest of the data unchanged.
struct Coordinates {
  std::int64_t sequence = 0;
  std::int64_t token = 0;
  std::int64_t head = 0;
  std::int64_t channel = 0;
};

/// Random numbers by coordinates (Random123, Philox 4x64). All functions use only integer operations and
/// correctly rounded float64 ones, so every machine gives the same bits.
class Counter {
 public:
  Counter(std::uint64_t seed, std::string_view tensor);

  /// Uniform in [0, 1), with 53 bits.
  [[nodiscard]] double uniform(const Coordinates& at) const;
  /// Zero mean, unit variance, bell-shaped: the sum of sixteen 16-bit uniforms, so |x| < 6.93, and no libm is
  /// involved.
  [[nodiscard]] double normal(const Coordinates& at) const;
  /// Uniform in 0..n-1, n >= 1.
  [[nodiscard]] std::int64_t below(const Coordinates& at, std::int64_t n) const;

 private:
  std::uint64_t seed_;
  std::uint64_t tensor_;
};

}  // namespace samestate

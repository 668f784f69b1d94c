#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "optimized/cpu/block.h"
#include "reference/contract.h"

namespace samestate::cpu {

/// The contract's sums, emulated. tensor_core adds 16 products at a time to the fp32 accumulator, exactly
/// except for the rounding of double, and truncates toward zero (BOUNDS 13.8, la.py mm 'tc'). fp32 rounds
/// after each term, from the last one to the first, an order that the kernels do not use.
struct EmulatedSums {
  Accumulator accumulator = Accumulator::fp32;

  /// The fp32 value nearest to x on the side of zero.
  [[nodiscard]] static float truncate(double x) {
    const auto nearest = static_cast<float>(x);
    const bool outward = std::fabs(static_cast<double>(nearest)) > std::fabs(x);
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(nearest) - (outward ? 1U : 0U));
  }

  void multiply(const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float* c,
                std::int64_t ldc, std::int64_t rows, std::int64_t columns, std::int64_t inner) const {
    for (std::int64_t j = 0; j < columns; j += kStateColumns) {
      const std::int64_t width = std::min(kStateColumns, columns - j);
      for (std::int64_t i = 0; i < rows; ++i) {
        sum(
            a + i * lda, inner, width, [&](std::int64_t l) { return b + l * ldb + j; }, c + i * ldc + j);
      }
    }
  }

  void read(const float* k, float decay, const float* state, std::int64_t dk, std::int64_t width,
            float* p) const {
    std::array<float, kStateColumns> decayed;
    const auto row = [&](std::int64_t l) {
      for (std::int64_t c = 0; c < width; ++c) decayed[c] = decay * state[l * width + c];
      return decayed.data();
    };
    sum(k, dk, width, row, p);
  }

  void write(const float* k, const float* u, const float* q, float decay, float* state, std::int64_t dk,
             std::int64_t width, float* o) const {
    for (std::int64_t l = 0; l < dk; ++l) {
      float* row = state + l * width;
      for (std::int64_t c = 0; c < width; ++c) row[c] = std::fma(k[l], u[c], decay * row[c]);
    }
    sum(
        q, dk, width, [&](std::int64_t l) { return state + l * width; }, o);
  }

  [[nodiscard]] float dot(const float* x, const float* y, std::int64_t count) const {
    float result;
    sum(
        x, count, 1, [&](std::int64_t l) { return y + l; }, &result);
    return result;
  }

 private:
  static constexpr std::int64_t kTerms = 16;

  /// y[0..width) = sum_l x[l] row(l)[0..width), width <= kStateColumns.
  template <class Row>
  void sum(const float* x, std::int64_t inner, std::int64_t width, const Row& row, float* y) const {
    std::fill_n(y, width, 0.0F);
    if (accumulator == Accumulator::fp32) {
      for (std::int64_t l = inner; l-- > 0;) {
        const double factor = x[l];
        const float* z = row(l);
        for (std::int64_t c = 0; c < width; ++c) {
          y[c] = static_cast<float>(static_cast<double>(y[c]) + factor * static_cast<double>(z[c]));
        }
      }
      return;
    }
    std::array<double, kStateColumns> block;
    for (std::int64_t first = 0; first < inner; first += kTerms) {
      block.fill(0.0);
      for (std::int64_t l = first; l < std::min(inner, first + kTerms); ++l) {
        const double factor = x[l];
        const float* z = row(l);
        for (std::int64_t c = 0; c < width; ++c) block[c] += factor * static_cast<double>(z[c]);
      }
      for (std::int64_t c = 0; c < width; ++c) y[c] = truncate(static_cast<double>(y[c]) + block[c]);
    }
  }
};

}  // namespace samestate::cpu

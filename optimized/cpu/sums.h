#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "optimized/cpu/block.h"
#include "optimized/cpu/lanes.h"
#include "reference/contract.h"

/// The two ways of summing products: FusedSums is the kernel, EmulatedSums its twin. Every sum runs over the
/// inner index in a fixed order for each element by itself, so that the bits depend neither on the blocking
/// nor on the threads, and terms that are zero change nothing.
namespace samestate::cpu {

/// Columns of the state that one recurrent task holds: 128 x 64 fp32 values are 32 KiB of level-1 cache.
inline constexpr std::int64_t STATE_COLUMNS = 64;

/// fp32 fused multiply-adds in the order of the inner index.
struct FusedSums {
  /// c[0..height, 0..PANEL) = a b over `inner` terms, accumulators in registers.
  template <int height>
  static void tile(const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float* c,
                   std::int64_t ldc, std::int64_t inner) {
    Lanes sum[height][2] = {};
    for (std::int64_t l = 0; l < inner; ++l) {
      Lanes left;
      Lanes right;
      load(left, b + l * ldb);
      load(right, b + l * ldb + LANES);
#pragma GCC unroll 8
      for (int i = 0; i < height; ++i) {
        Lanes x;
        splat(x, a[i * lda + l]);
        fuse(sum[i][0], x, left);
        fuse(sum[i][1], x, right);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < height; ++i) {
      store(c + i * ldc, sum[i][0]);
      store(c + i * ldc + LANES, sum[i][1]);
    }
  }

  /// c [rows, columns] = a [rows, inner] b [inner, columns]; columns is a multiple of PANEL.
  void multiply(const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float* c,
                std::int64_t ldc, std::int64_t rows, std::int64_t columns, std::int64_t inner) const {
    for (std::int64_t j = 0; j < columns; j += PANEL) {
      std::int64_t i = 0;
      const auto strip = [&]<int height>(std::integral_constant<int, height>) {
        tile<height>(a + i * lda, lda, b + j, ldb, c + i * ldc + j, ldc, inner);
        i += height;
      };
      while (rows - i >= 6) strip(std::integral_constant<int, 6>{});
      if (rows - i >= 4) strip(std::integral_constant<int, 4>{});
      if (rows - i >= 2) strip(std::integral_constant<int, 2>{});
      if (rows - i >= 1) strip(std::integral_constant<int, 1>{});
    }
  }

  /// p = (decay S)^T k, the decayed state rounded but not stored. S [dk, width], width 8, 16, 32 or 64.
  void read(const float* k, float decay, const float* state, std::int64_t dk, std::int64_t width,
            float* p) const {
    with_registers(width, [&]<int registers>(std::integral_constant<int, registers>) {
      Lanes sum[registers] = {};
      Lanes factor;
      splat(factor, decay);
      for (std::int64_t l = 0; l < dk; ++l) {
        Lanes x;
        splat(x, k[l]);
#pragma GCC unroll 8
        for (int c = 0; c < registers; ++c) {
          Lanes s;
          load(s, state + l * width + c * LANES);
          s *= factor;
          fuse(sum[c], x, s);
        }
      }
      for (int c = 0; c < registers; ++c) store(p + c * LANES, sum[c]);
    });
  }

  /// S <- decay S + k u^T and o = S^T q. S [dk, width] as in read.
  void write(const float* k, const float* u, const float* q, float decay, float* state, std::int64_t dk,
             std::int64_t width, float* o) const {
    with_registers(width, [&]<int registers>(std::integral_constant<int, registers>) {
      // Half the registers at a time: sums, u and the state together would not fit.
      constexpr int half = std::max(1, registers / 2);
      for (int first = 0; first < registers; first += half) {
        Lanes sum[half] = {};
        Lanes written[half];
        for (int c = 0; c < half; ++c) load(written[c], u + (first + c) * LANES);
        Lanes factor;
        splat(factor, decay);
        for (std::int64_t l = 0; l < dk; ++l) {
          Lanes key;
          Lanes query;
          splat(key, k[l]);
          splat(query, q[l]);
          float* row = state + l * width + first * LANES;
#pragma GCC unroll 8
          for (int c = 0; c < half; ++c) {
            Lanes s;
            load(s, row + c * LANES);
            s *= factor;
            fuse(s, key, written[c]);
            store(row + c * LANES, s);
            fuse(sum[c], query, s);
          }
        }
        for (int c = 0; c < half; ++c) store(o + (first + c) * LANES, sum[c]);
      }
    });
  }

 private:
  template <class Body>
  static void with_registers(std::int64_t width, const Body& body) {
    if (width == 8) return body(std::integral_constant<int, 1>{});
    if (width == 16) return body(std::integral_constant<int, 2>{});
    if (width == 32) return body(std::integral_constant<int, 4>{});
    body(std::integral_constant<int, 8>{});
  }
};

/// The sums of the contract, emulated: tensor_core adds 16 products at a time, exact but for the rounding of
/// double, to the fp32 accumulator and truncates toward zero (BOUNDS 13.8, la.py mm 'tc'); fp32 rounds after
/// each term, from the last one to the first, an order that the kernel does not use.
struct EmulatedSums {
  Accumulator accumulator = Accumulator::fp32;

  /// The fp32 value next to x toward zero.
  [[nodiscard]] static float truncate(double x) {
    const auto nearest = static_cast<float>(x);
    const bool outward = std::fabs(static_cast<double>(nearest)) > std::fabs(x);
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(nearest) - (outward ? 1U : 0U));
  }

  void multiply(const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float* c,
                std::int64_t ldc, std::int64_t rows, std::int64_t columns, std::int64_t inner) const {
    for (std::int64_t j = 0; j < columns; j += STATE_COLUMNS) {
      const std::int64_t width = std::min(STATE_COLUMNS, columns - j);
      for (std::int64_t i = 0; i < rows; ++i) {
        sum(
            a + i * lda, inner, width, [&](std::int64_t l) { return b + l * ldb + j; }, c + i * ldc + j);
      }
    }
  }

  void read(const float* k, float decay, const float* state, std::int64_t dk, std::int64_t width,
            float* p) const {
    std::array<float, STATE_COLUMNS> decayed;
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

 private:
  static constexpr std::int64_t TERMS = 16;

  /// y[0..width) = sum_l x[l] row(l)[0..width), width <= STATE_COLUMNS.
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
    std::array<double, STATE_COLUMNS> block;
    for (std::int64_t first = 0; first < inner; first += TERMS) {
      block.fill(0.0);
      for (std::int64_t l = first; l < std::min(inner, first + TERMS); ++l) {
        const double factor = x[l];
        const float* z = row(l);
        for (std::int64_t c = 0; c < width; ++c) block[c] += factor * static_cast<double>(z[c]);
      }
      for (std::int64_t c = 0; c < width; ++c) y[c] = truncate(static_cast<double>(y[c]) + block[c]);
    }
  }
};

/// c = a b.
template <class Sums>
void product(const Sums& sums, const Block& a, const Block& b, Block& c) {
  c.resize(a.rows, b.columns);
  sums.multiply(a.row(0), a.stride, b.row(0), b.stride, c.row(0), c.stride, a.rows, b.stride, b.rows);
}

/// Rows that a triangular product takes at a time: two strips of FusedSums::tile.
inline constexpr std::int64_t TRIANGLE_ROWS = 12;

/// c = a b where only the elements j <= i of c are wanted; the others are left undefined.
template <class Sums>
void product_lower(const Sums& sums, const Block& a, const Block& b, Block& c) {
  c.resize(a.rows, b.columns);
  for (std::int64_t i = 0; i < a.rows; i += TRIANGLE_ROWS) {
    const std::int64_t end = std::min(a.rows, i + TRIANGLE_ROWS);
    sums.multiply(a.row(i), a.stride, b.row(0), b.stride, c.row(i), c.stride, end - i, round_up(end, PANEL),
                  b.rows);
  }
}

/// c = a b where a is lower triangular: terms past the diagonal block are zero and are not formed.
template <class Sums>
void lower_product(const Sums& sums, const Block& a, const Block& b, Block& c) {
  c.resize(a.rows, b.columns);
  for (std::int64_t i = 0; i < a.rows; i += TRIANGLE_ROWS) {
    const std::int64_t end = std::min(a.rows, i + TRIANGLE_ROWS);
    sums.multiply(a.row(i), a.stride, b.row(0), b.stride, c.row(i), c.stride, end - i, b.stride, end);
  }
}

}  // namespace samestate::cpu

#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "optimized/cpu/block.h"
#include "optimized/cpu/lanes.h"

namespace samestate::cpu {

/// fp32 fused multiply-adds in the order of the inner index.
struct FusedSums {
  /// c[0..height, 0..kPanel) = a b over `inner` terms, accumulators in registers.
  template <int height>
  static void tile(const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float* c,
                   std::int64_t ldc, std::int64_t inner) {
    Lanes sum[height][2] = {};
    for (std::int64_t l = 0; l < inner; ++l) {
      Lanes left;
      Lanes right;
      load(left, b + l * ldb);
      load(right, b + l * ldb + kLanes);
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
      store(c + i * ldc + kLanes, sum[i][1]);
    }
  }

  /// c [rows, columns] = a [rows, inner] b [inner, columns]; columns is a multiple of kPanel.
  void multiply(const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float* c,
                std::int64_t ldc, std::int64_t rows, std::int64_t columns, std::int64_t inner) const {
    for (std::int64_t j = 0; j < columns; j += kPanel) {
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
          load(s, state + l * width + c * kLanes);
          s *= factor;
          fuse(sum[c], x, s);
        }
      }
      for (int c = 0; c < registers; ++c) store(p + c * kLanes, sum[c]);
    });
  }

  /// S <- decay S + k u^T and o = S^T q. S [dk, width] as in read.
  void write(const float* k, const float* u, const float* q, float decay, float* state, std::int64_t dk,
             std::int64_t width, float* o) const {
    with_registers(width, [&]<int registers>(std::integral_constant<int, registers>) {
      // Half of the registers at a time: sums, u and the state together would not fit.
      constexpr int half = std::max(1, registers / 2);
      for (int first = 0; first < registers; first += half) {
        Lanes sum[half] = {};
        Lanes written[half];
        for (int c = 0; c < half; ++c) load(written[c], u + (first + c) * kLanes);
        Lanes factor;
        splat(factor, decay);
        for (std::int64_t l = 0; l < dk; ++l) {
          Lanes key;
          Lanes query;
          splat(key, k[l]);
          splat(query, q[l]);
          float* row = state + l * width + first * kLanes;
#pragma GCC unroll 8
          for (int c = 0; c < half; ++c) {
            Lanes s;
            load(s, row + c * kLanes);
            s *= factor;
            fuse(s, key, written[c]);
            store(row + c * kLanes, s);
            fuse(sum[c], query, s);
          }
        }
        for (int c = 0; c < half; ++c) store(o + (first + c) * kLanes, sum[c]);
      }
    });
  }

  /// sum_l x_l y_l.
  [[nodiscard]] static float dot(const float* x, const float* y, std::int64_t count) {
    float sum = 0.0F;
    for (std::int64_t l = 0; l < count; ++l) sum = __builtin_fmaf(x[l], y[l], sum);
    return sum;
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

}  // namespace samestate::cpu

#pragma once

#include <algorithm>
#include <cstdint>

#include "optimized/cuda/pointwise/pointwise.cuh"
#include "optimized/cuda/products/product.cuh"

/// The logits of routers, x w^T: many channels, few experts. Where that has fewer tiles than there are multiprocessors, parts of the depth
/// are products of their own in fp32, which are added up and rounded once.
namespace samestate::cuda {

/// Returns the number of parts of the depth; 1 means that it is not divided. It depends on the shape alone,
/// whatever the device, because the order of sums depends on where parts begin.
template <class Operand>
[[nodiscard]] std::int64_t depth_parts(std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  constexpr std::int64_t kMultiprocessors = 132, kMost = 16, kShortest = 256, kPiece = 64, kFewRows = 32;
  // In bf16 half the way of a short product is not worth its parts' way to memory and back.
  constexpr std::int64_t kLeast = sizeof(Operand) == 2 ? 4 : 2;
  const auto tiles = [&](std::int64_t by_rows, std::int64_t by_columns) {
    return (rows + by_rows - 1) / by_rows * ((columns + by_columns - 1) / by_columns);
  };
  const std::int64_t blocks = std::max<std::int64_t>(rows <= kFewRows ? tiles(16, 16) : tiles(128, 64), 1);
  std::int64_t parts = 1;
  while (2 * parts <= kMost && 2 * parts * blocks <= kMultiprocessors && depth / (2 * parts) >= kShortest &&
         depth % (2 * parts * kPiece) == 0)
    parts *= 2;
  return parts < kLeast ? 1 : parts;
}

template <class Operand>
struct LogitParts {
  const float* parts = nullptr;  ///< [count][size]
  const float* bias = nullptr;   ///< [columns] or none
  Operand* sums = nullptr;       ///< [size]
  std::int64_t size = 0;
  int columns = 1;
  int count = 0;
};

/// Four adjacent sums, of parts in their order, where a row has whole fours; else one.
template <class Operand, int n>
struct SummedLogits {
  using Parameters = LogitParts<Operand>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return p.size / n; }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t item) {
    constexpr int kAtOnce = 4;
    const std::int64_t at = item * n;
    float sums[n] = {};
    for (int first = 0; first < p.count; first += kAtOnce) {
      Vector<float, n> some[kAtOnce] = {};
      SAMESTATE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i < p.count)
          some[i] = *reinterpret_cast<const Vector<float, n>*>(p.parts + (first + i) * p.size + at);
      }
      SAMESTATE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        SAMESTATE_UNROLL
        for (int e = 0; e < n; ++e) sums[e] += element(some[i], e);
      }
    }
    if (p.bias != nullptr) {
      const auto column = static_cast<int>(at - quotient(at, p.columns) * p.columns);
      SAMESTATE_UNROLL
      for (int e = 0; e < n; ++e) sums[e] += p.bias[column + e];
    }
    *reinterpret_cast<Vector<Operand, n>*>(p.sums + at) = narrowed<Operand>(sums);
  }
};

template <class Operand>
struct LogitsProduct {
  ProductParameters<Operand, StoreProduct<Operand>> whole;
  ProductParameters<Operand, StoreProduct<float>> of_parts;
  LogitParts<Operand> parts;  ///< count 0: `whole` is multiplied

  /// x: [rows, depth], w: [columns, depth], `to`: [rows, columns], dense; `bias`: [columns] or none.
  template <class Tensors>
  static LogitsProduct of(const Operand* x, const Operand* w, Operand* to, const float* bias,
                          std::int64_t rows, std::int64_t columns, std::int64_t depth, Tensors& tensors) {
    LogitsProduct p;
    const auto give = [&](auto& product) {
      product.x = x, product.w = w;
      product.rows = rows, product.columns = columns;
      product.depth = product.x_stride = product.w_stride = depth;
    };
    give(p.whole);
    p.whole.epilogue = {to, columns, 0, bias};
    const std::int64_t count = depth_parts<Operand>(rows, columns, depth), size = rows * columns;
    if (count == 1 || size == 0) return p;
    float* const sums = tensors.template scratch<float>(count * size);
    give(p.of_parts);
    p.of_parts.batch = count;
    p.of_parts.depth = p.of_parts.x_batch = p.of_parts.w_batch = depth / count;
    p.of_parts.epilogue = {sums, columns, size, nullptr};
    p.parts = {sums, bias, to, size, static_cast<int>(columns), static_cast<int>(count)};
    return p;
  }
  void launch(cudaStream_t stream) const {
    if (parts.count == 0) return Product<Operand, StoreProduct<Operand>>::launch(whole, stream);
    Product<Operand, StoreProduct<float>>::launch(of_parts, stream);
    if (parts.columns % 4 == 0) return EachThread<SummedLogits<Operand, 4>>::launch(parts, stream);
    EachThread<SummedLogits<Operand, 1>>::launch(parts, stream);
  }
};

}  // namespace samestate::cuda

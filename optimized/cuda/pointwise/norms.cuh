#pragma once

#include <cstdint>

#include "optimized/cuda/host/grid.cuh"
#include "optimized/cuda/pointwise/pointwise.cuh"

/// The norms of rows (RMS-1 .. RMS-8, EQUATIONS 5.1, GDN-32), memory-bound: a row is read once, its sum of squares meets in
/// shuffles, and what it becomes is written once. fp32 throughout; only what is written is rounded to Operand.
namespace samestate::cuda {

enum class RowNorm {
  plain,         ///< y = x r w, r = (mean x^2 + epsilon)^-1/2
  zero_centred,  ///< y = x r (1 + w)
  residual,      ///< sum = x + second; y = sum r (1 + w)
  gated,         ///< y = x r w silu(second)
  gated_alone,   ///< y = x r silu(second)
  gate_first,    ///< y = h r w, h = x silu(second)
  l2             ///< y = x (sum x^2 + epsilon)^-1/2
};

SAMESTATE_HOST_DEVICE constexpr bool has_second(RowNorm norm) {
  return norm == RowNorm::residual || norm == RowNorm::gated || norm == RowNorm::gated_alone ||
         norm == RowNorm::gate_first;
}

SAMESTATE_HOST_DEVICE constexpr bool has_weight(RowNorm norm) {
  return norm != RowNorm::l2 && norm != RowNorm::gated_alone;
}

template <class Operand>
struct NormParameters {
  const Operand* x = nullptr;       ///< [rows, width]
  const Operand* second = nullptr;  ///< [rows, width] z, or the residual
  const float* weight = nullptr;    ///< [groups, width]
  Operand* y = nullptr;             ///< [rows, width]
  Operand* sum = nullptr;           ///< [rows, width] of a residual norm
  std::int64_t rows = 0;
  int width = 0;
  int groups =
      1;  ///< rows one after the other that have a weight each: parts of a longer row with a mean each
  float epsilon = 1e-6F;
  /// If not 0, this many neighbouring rows of `second` are dense, and the next ones are `second_stride`
  /// elements farther. 0 means that all are dense.
  int second_rows = 0;
  int second_stride = 0;

  [[nodiscard]] SAMESTATE_DEVICE const Operand* second_of(std::int64_t row) const {
    if (second_rows == 0) return second + row * width;
    const std::int64_t group = quotient(row, second_rows);
    return second + group * second_stride + (row - group * second_rows) * width;
  }
  [[nodiscard]] SAMESTATE_DEVICE const float* weight_of(std::int64_t row) const {
    return groups == 1 ? weight : weight + (row - quotient(row, groups) * groups) * width;
  }
};

/// Returns the value of an element that is normalised.
template <RowNorm norm>
SAMESTATE_DEVICE float normalised(float x, float second) {
  if constexpr (norm == RowNorm::residual) return x + second;
  if constexpr (norm == RowNorm::gate_first) return x * silu(second);
  return x;
}

template <RowNorm norm>
SAMESTATE_DEVICE float factor_of_row(float squares, int width, float epsilon) {
  return inverse_root((norm == RowNorm::l2 ? squares : squares / static_cast<float>(width)) + epsilon);
}

/// An element of y: h of normalised(), times the row's factor.
template <RowNorm norm>
SAMESTATE_DEVICE float scaled(float h, float factor, float weight, float second) {
  if constexpr (norm == RowNorm::l2) return h * factor;
  if constexpr (norm == RowNorm::zero_centred || norm == RowNorm::residual)
    return h * factor * (1.0F + weight);
  if constexpr (norm == RowNorm::gated) return h * factor * (weight * silu(second));
  if constexpr (norm == RowNorm::gated_alone) return h * factor * silu(second);
  return h * factor * weight;
}

/// n elements of a row, by one access of each tensor that has them.
template <class Operand, RowNorm norm, int n>
struct RowPart {
  using Elements = Vector<Operand, n>;
  Elements x{}, second{};

  /// Where `wanted`; zeros else.
  SAMESTATE_DEVICE void load(const Operand* xs, const Operand* seconds, int column, bool wanted) {
    x = at(xs + column, wanted);
    if constexpr (has_second(norm)) second = at(seconds + column, wanted);
  }
  [[nodiscard]] SAMESTATE_DEVICE float second_of(int i) const {
    if constexpr (has_second(norm)) return element(second, i);
    return 0.0F;
  }
  [[nodiscard]] SAMESTATE_DEVICE float h(int i) const {
    return normalised<norm>(element(x, i), second_of(i));
  }
  [[nodiscard]] SAMESTATE_DEVICE float add_squares(float to) const {
    SAMESTATE_UNROLL
    for (int i = 0; i < n; ++i) to = fused(h(i), h(i), to);
    return to;
  }
  /// Stores the result in the row that begins at element `first` of the outputs.
  SAMESTATE_DEVICE void store(const NormParameters<Operand>& p, std::int64_t first, const float* weights,
                              int column, float factor, bool wanted) const {
    constexpr int kOfWeight = n < 4 ? n : 4;
    Vector<float, kOfWeight> weight[n / kOfWeight] = {};
    SAMESTATE_UNROLL
    for (int w = 0; has_weight(norm) && w < n / kOfWeight; ++w) {
      const float* const from = weights + column + kOfWeight * w;
      if constexpr (kOfWeight == 4) {
        weight[w] = load_settled<false>(reinterpret_cast<const Vector<float, 4>*>(from), wanted);
      } else if (wanted) {
        weight[w] = *reinterpret_cast<const Vector<float, kOfWeight>*>(from);
      }
    }
    float y[n], hs[n];
    SAMESTATE_UNROLL
    for (int i = 0; i < n; ++i) {
      hs[i] = h(i);
      y[i] = scaled<norm>(hs[i], factor, element(weight[i / kOfWeight], i % kOfWeight), second_of(i));
    }
    if (!wanted) return;
    store_result<true>(reinterpret_cast<Elements*>(p.y + first + column), narrowed<Operand>(y));
    if constexpr (norm == RowNorm::residual)
      store_result<true>(reinterpret_cast<Elements*>(p.sum + first + column), narrowed<Operand>(hs));
  }

 private:
  static SAMESTATE_DEVICE Elements at(const Operand* from, bool wanted) {
    const auto* const elements = reinterpret_cast<const Elements*>(from);
    if constexpr (sizeof(Elements) == 16) return load_settled<true>(elements, wanted);
    return wanted ? *elements : Elements{};
  }
};

/// Rows of a width that is a multiple of 16 bytes and at most `lanes` x `loads` of them, `lanes` lanes a row: a warp's
/// 32 / lanes rows from `group` on, all of it in registers between the two passes.
template <class Operand, RowNorm norm, int lanes, int loads>
SAMESTATE_DEVICE void norm_rows(const NormParameters<Operand>& p, std::int64_t group) {
  constexpr int n = 16 / static_cast<int>(sizeof(Operand));
  const int lane = lane_index() % lanes;
  const std::int64_t row = group * (32 / lanes) + lane_index() / lanes;
  const std::int64_t first = row * p.width;
  const Operand* const seconds = has_second(norm) ? p.second_of(row) : nullptr;
  RowPart<Operand, norm, n> parts[loads];
  bool inside[loads];
  SAMESTATE_UNROLL
  for (int l = 0; l < loads; ++l) {
    const int column = (l * lanes + lane) * n;
    inside[l] = row < p.rows && column < p.width;
    parts[l].load(p.x + first, seconds, column, inside[l]);
  }
  float squares = 0.0F;
  SAMESTATE_UNROLL
  for (int l = 0; l < loads; ++l) squares = parts[l].add_squares(squares);
  SAMESTATE_UNROLL
  for (int mask = lanes / 2; mask > 0; mask /= 2) squares += shuffle_xor(squares, mask);
  const float factor = factor_of_row<norm>(squares, p.width, p.epsilon);
  const float* const weights = p.weight_of(row);
  SAMESTATE_UNROLL
  for (int l = 0; l < loads; ++l)
    parts[l].store(p, first, weights, (l * lanes + lane) * n, factor, inside[l]);
}

/// One row of any width by `threads` threads, of which this is `thread`, n elements an access: `loads` accesses of each tensor
/// stay in registers between the two passes, what is beyond is read twice. `sum_of` adds up what the threads have.
template <class Operand, RowNorm norm, int threads, int loads, int n, class Sum>
SAMESTATE_DEVICE void norm_wide_row(const NormParameters<Operand>& p, std::int64_t row, int thread,
                                    Sum&& sum_of) {
  using Part = RowPart<Operand, norm, n>;
  const std::int64_t first = row * p.width;
  const Operand* const xs = p.x + first;
  const Operand* const seconds = has_second(norm) ? p.second_of(row) : nullptr;
  const auto column_of = [&](int access) { return (access * threads + thread) * n; };
  Part parts[loads];
  SAMESTATE_UNROLL
  for (int l = 0; l < loads; ++l) parts[l].load(xs, seconds, column_of(l), column_of(l) < p.width);
  float squares = 0.0F;
  SAMESTATE_UNROLL
  for (int l = 0; l < loads; ++l) squares = parts[l].add_squares(squares);
  for (int l = loads; column_of(l) < p.width; ++l) {
    Part part;
    part.load(xs, seconds, column_of(l), true);
    squares = part.add_squares(squares);
  }
  const float factor = factor_of_row<norm>(sum_of(squares), p.width, p.epsilon);
  const float* const weights = p.weight_of(row);
  SAMESTATE_UNROLL
  for (int l = 0; l < loads; ++l)
    parts[l].store(p, first, weights, column_of(l), factor, column_of(l) < p.width);
  for (int l = loads; column_of(l) < p.width; ++l) {
    Part part;
    part.load(xs, seconds, column_of(l), true);
    part.store(p, first, weights, column_of(l), factor, true);
  }
}

template <class Operand, RowNorm norm, int lanes, int loads>
struct RowsOfLanes {
  using Parameters = NormParameters<Operand>;
  static constexpr int kRows = 32 / lanes;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) {
    return (p.rows + kRows - 1) / kRows;
  }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t group) {
    norm_rows<Operand, norm, lanes, loads>(p, group);
  }
};

/// A row a warp, element by element.
template <class Operand, RowNorm norm>
struct AnyRow {
  using Parameters = NormParameters<Operand>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return p.rows; }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t row) {
    norm_wide_row<Operand, norm, 32, 4, 1>(p, row, lane_index(), [](float x) { return warp_sum(x); });
  }
};

/// A row a block. Shared memory: a float a warp.
template <class Operand, RowNorm norm, int threads, int loads, int n>
struct RowOfBlock {
  using Parameters = NormParameters<Operand>;
  static constexpr int kThreads = threads, kWarps = threads / 32;
  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    float* const sums = reinterpret_cast<float*>(shared);
    for (std::int64_t row = block_index(); row < p.rows; row += grid_blocks()) {
      norm_wide_row<Operand, norm, threads, loads, n>(p, row, thread_index(), [&](float x) {
        x = warp_sum(x);
        if (lane_index() == 0) sums[warp_index()] = x;
        block_barrier();
        x = 0.0F;
        for (int warp = 0; warp < kWarps; ++warp) x += sums[warp];
        return x;
      });
      // The next row's sums go where all have read this one's.
      block_barrier();
    }
  }
  static void launch(const Parameters& p, cudaStream_t stream) {
    cuda::launch<RowOfBlock>(blocks_of(p.rows, 1), kWarps * sizeof(float), p, stream);
  }
};

/// All rows, by the grid that fits their width.
template <RowNorm norm, class Operand>
void launch_norm(const NormParameters<Operand>& p, cudaStream_t stream) {
  constexpr int n = 16 / static_cast<int>(sizeof(Operand));
  const bool aligned = reinterpret_cast<std::uintptr_t>(p.second) % 16 == 0 && p.second_stride % n == 0;
  if (p.width % n != 0 || !aligned) {
    if (p.width <= 512) return EachWarp<AnyRow<Operand, norm>>::launch(p, stream);
    return RowOfBlock<Operand, norm, 512, 8, 1>::launch(p, stream);
  }
  if (p.width <= 8 * n) return EachWarp<RowsOfLanes<Operand, norm, 8, 1>>::launch(p, stream);
  if (p.width <= 16 * n) return EachWarp<RowsOfLanes<Operand, norm, 16, 1>>::launch(p, stream);
  if (p.width <= 32 * n) return EachWarp<RowsOfLanes<Operand, norm, 32, 1>>::launch(p, stream);
  if (p.width <= 32 * 2 * n) return EachWarp<RowsOfLanes<Operand, norm, 32, 2>>::launch(p, stream);
  if (p.width <= 32 * 4 * n) return EachWarp<RowsOfLanes<Operand, norm, 32, 4>>::launch(p, stream);
  if (p.width <= 32 * 8 * n) return EachWarp<RowsOfLanes<Operand, norm, 32, 8>>::launch(p, stream);
  if (p.width <= 256 * 2 * n) return RowOfBlock<Operand, norm, 256, 2, n>::launch(p, stream);
  RowOfBlock<Operand, norm, 512, 4, n>::launch(p, stream);
}

}  // namespace samestate::cuda

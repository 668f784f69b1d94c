#pragma once

#include <cstdint>

#include "optimized/cuda/operators/grid.cuh"
#include "optimized/cuda/operators/pointwise.cuh"

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
  /// So many neighbouring rows of `second` lie dense and the next ones `second_stride` elements farther; 0: all are dense.
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

/// What is normalised of an element.
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

/// Rows of a width that is a multiple of 16 bytes and at most `lanes` x `loads` of them, `lanes` lanes a row: a warp's
/// 32 / lanes rows from `group` on, all of it in registers between the two passes.
template <class Operand, RowNorm norm, int lanes, int loads>
SAMESTATE_DEVICE void norm_rows(const NormParameters<Operand>& p, std::int64_t group) {
  constexpr int n = 16 / static_cast<int>(sizeof(Operand));
  using Elements = Vector<Operand, n>;
  const int lane = lane_index() % lanes;
  const std::int64_t row = group * (32 / lanes) + lane_index() / lanes;
  const std::int64_t first = row * p.width;
  const Operand* const seconds = has_second(norm) ? p.second_of(row) : nullptr;
  Elements x[loads], second[loads];
  bool inside[loads];
  SAMESTATE_UNROLL
  for (int l = 0; l < loads; ++l) {
    const int column = (l * lanes + lane) * n;
    inside[l] = row < p.rows && column < p.width;
    x[l] = load_settled<true>(reinterpret_cast<const Elements*>(p.x + first + column), inside[l]);
    if constexpr (has_second(norm))
      second[l] = load_settled<true>(reinterpret_cast<const Elements*>(seconds + column), inside[l]);
  }
  const auto second_of = [&](int l, int i) {
    if constexpr (has_second(norm)) return element(second[l], i);
    return 0.0F;
  };
  float squares = 0.0F;
  SAMESTATE_UNROLL
  for (int l = 0; l < loads; ++l) {
    SAMESTATE_UNROLL
    for (int i = 0; i < n; ++i) {
      const float h = normalised<norm>(element(x[l], i), second_of(l, i));
      squares = fused(h, h, squares);
    }
  }
  SAMESTATE_UNROLL
  for (int mask = lanes / 2; mask > 0; mask /= 2) squares += shuffle_xor(squares, mask);
  const float factor = factor_of_row<norm>(squares, p.width, p.epsilon);
  const float* const weights = p.weight_of(row);
  SAMESTATE_UNROLL
  for (int l = 0; l < loads; ++l) {
    const int column = (l * lanes + lane) * n;
    Vector<float, 4> weight[n / 4] = {};
    SAMESTATE_UNROLL
    for (int w = 0; has_weight(norm) && w < n / 4; ++w)
      weight[w] =
          load_settled<false>(reinterpret_cast<const Vector<float, 4>*>(weights + column + 4 * w), inside[l]);
    float y[n], h[n];
    SAMESTATE_UNROLL
    for (int i = 0; i < n; ++i) {
      h[i] = normalised<norm>(element(x[l], i), second_of(l, i));
      y[i] = scaled<norm>(h[i], factor, element(weight[i / 4], i % 4), second_of(l, i));
    }
    if (!inside[l]) continue;
    store_result<true>(reinterpret_cast<Elements*>(p.y + first + column), narrowed<Operand>(y));
    if constexpr (norm == RowNorm::residual)
      store_result<true>(reinterpret_cast<Elements*>(p.sum + first + column), narrowed<Operand>(h));
  }
}

/// One row of any width by one warp, element by element and read twice.
template <class Operand, RowNorm norm>
SAMESTATE_DEVICE void norm_row(const NormParameters<Operand>& p, std::int64_t row) {
  if (row >= p.rows) return;
  const std::int64_t first = row * p.width;
  const Operand* const seconds = has_second(norm) ? p.second_of(row) : nullptr;
  const auto second_of = [&](int i) { return has_second(norm) ? widen(seconds[i]) : 0.0F; };
  float squares = 0.0F;
  for (int i = lane_index(); i < p.width; i += 32) {
    const float h = normalised<norm>(widen(p.x[first + i]), second_of(i));
    squares = fused(h, h, squares);
  }
  const float factor = factor_of_row<norm>(warp_sum(squares), p.width, p.epsilon);
  const float* const weights = p.weight_of(row);
  for (int i = lane_index(); i < p.width; i += 32) {
    const float h = normalised<norm>(widen(p.x[first + i]), second_of(i));
    const float weight = has_weight(norm) ? weights[i] : 1.0F;
    p.y[first + i] = narrow<Operand>(scaled<norm>(h, factor, weight, second_of(i)));
    if constexpr (norm == RowNorm::residual) p.sum[first + i] = narrow<Operand>(h);
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

template <class Operand, RowNorm norm>
struct AnyRow {
  using Parameters = NormParameters<Operand>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return p.rows; }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t row) { norm_row<Operand, norm>(p, row); }
};

/// All rows, by the grid that fits their width.
template <RowNorm norm, class Operand>
void launch_norm(const NormParameters<Operand>& p, cudaStream_t stream) {
  constexpr int n = 16 / static_cast<int>(sizeof(Operand));
  const bool aligned = reinterpret_cast<std::uintptr_t>(p.second) % 16 == 0 && p.second_stride % n == 0;
  if (p.width % n != 0 || p.width > 32 * 8 * n || !aligned) {
    EachWarp<AnyRow<Operand, norm>>::launch(p, stream);
  } else if (p.width <= 8 * n) {
    EachWarp<RowsOfLanes<Operand, norm, 8, 1>>::launch(p, stream);
  } else if (p.width <= 16 * n) {
    EachWarp<RowsOfLanes<Operand, norm, 16, 1>>::launch(p, stream);
  } else if (p.width <= 32 * n) {
    EachWarp<RowsOfLanes<Operand, norm, 32, 1>>::launch(p, stream);
  } else if (p.width <= 32 * 2 * n) {
    EachWarp<RowsOfLanes<Operand, norm, 32, 2>>::launch(p, stream);
  } else if (p.width <= 32 * 4 * n) {
    EachWarp<RowsOfLanes<Operand, norm, 32, 4>>::launch(p, stream);
  } else {
    EachWarp<RowsOfLanes<Operand, norm, 32, 8>>::launch(p, stream);
  }
}

}  // namespace samestate::cuda

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "optimized/cpu/operators/tensor.h"

/// Building blocks of layers around a matrix recurrence, in fp32.
namespace samestate::cpu::layer {

/// The format in which a kernel of the contract keeps values between two products: that of its operands.
[[nodiscard]] inline Format kept(const Contract& contract) { return contract.input; }

/// The contract for the core of a layer, whose q, k and v the layer has already rounded: the family's own
/// points on a tf32 unit, else fp32.
[[nodiscard]] inline Contract of_core(const Contract& contract) {
  return MatrixUnit::of(contract).operand == Format::none ? Contract{} : contract;
}

/// A weight [out, in] as the right factor [in, out].
[[nodiscard]] inline Block transposed(const NamedTensor<const float>& weight) {
  Block to;
  copy_transposed(rows_of(weight, 0, false), to);
  return to;
}

/// 1 / (1 + e^-x), evaluated on the side that does not overflow.
[[nodiscard]] inline float logistic(float x) {
  const float e = std::exp(-std::fabs(x));
  return (x < 0.0F ? e : 1.0F) / (1.0F + e);
}

[[nodiscard]] inline float silu(float x) { return x * logistic(x); }

/// log(1 + e^x).
[[nodiscard]] inline float softplus(float x) {
  return (x > 0.0F ? x : 0.0F) + std::log1p(std::exp(-std::fabs(x)));
}

/// (mean x^2 + epsilon)^-1/2.
[[nodiscard]] inline float inverse_root_mean_square(const float* x, std::int64_t width, float epsilon) {
  float partial[kLanes] = {};
  for (std::int64_t i = 0; i < width; ++i) partial[i % kLanes] += x[i] * x[i];
  float sum = 0.0F;
  for (const float part : partial) sum += part;
  return 1.0F / std::sqrt(sum / static_cast<float>(width) + epsilon);
}

/// y[c] = silu(sum_j w[j, c] history[first + j, c]): one token of a short convolution, with `taps` [W, C].
inline void convolve(const Block& taps, const Block& history, std::int64_t first, float* y) {
  const std::int64_t width = taps.columns;
  std::fill_n(y, width, 0.0F);
  for (std::int64_t j = 0; j < taps.rows; ++j) {
    const float* w = taps.row(j);
    const float* x = history.row(first + j);
    for (std::int64_t c = 0; c < width; ++c) y[c] += w[c] * x[c];
  }
  for (std::int64_t c = 0; c < width; ++c) y[c] = silu(y[c]);
}

/// Writes `count` values of token t of sequence b, from `column` on, to a tap [B, T, ...], if the call asks
/// for it.
inline void hand_out(const OperatorArguments& call, std::string_view tap, std::int64_t b, std::int64_t t,
                     const float* values, std::int64_t count, std::int64_t column = 0) {
  const NamedTensor<float>* to = call.tap(tap);
  if (to == nullptr) return;
  std::int64_t width = 1;
  for (std::size_t d = 2; d < to->shape.size(); ++d) width *= to->shape[d];
  std::copy_n(values, count, to->data + (b * call.tokens + t) * width + column);
}

/// A dense tensor that the call owns.
struct Dense {
  std::vector<float> values;
  template <std::size_t Rank>
  View<float, Rank> resize(const std::array<std::int64_t, Rank>& shape) {
    const View<float, Rank> view = row_major<float, Rank>(nullptr, shape);
    values.assign(static_cast<std::size_t>(view.size()), 0.0F);
    return row_major<float, Rank>(values.data(), shape);
  }
};

}  // namespace samestate::cpu::layer

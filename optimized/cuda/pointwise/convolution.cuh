#pragma once

#include <cstdint>

#include "optimized/cuda/host/grid.cuh"
#include "optimized/cuda/pointwise/pointwise.cuh"

/// The short convolution (EQUATIONS 5.6, GDN-9): y_t = act(bias + sum_j w_j x_{t-W+1+j}), depthwise and causal, before the
/// first token the W - 1 inputs that were carried; the last W - 1 inputs are carried on. One token is decoding.
namespace samestate::cuda {

inline constexpr int kConvolvedTokens = 32;  ///< per thread

template <class Operand>
struct ConvolutionParameters {
  const Operand* x = nullptr;       ///< [batch, tokens, channels], or as `groups` says
  const Operand* kernel = nullptr;  ///< [channels, W]
  const float* bias = nullptr;      ///< [channels]; null if there is none
  const Operand* past = nullptr;    ///< [batch, W - 1, channels], rows of state_stride
  Operand* y = nullptr;             ///< [batch, tokens, channels]
  Operand* carried = nullptr;       ///< [batch, W - 1, channels], rows of state_stride
  std::int64_t batch = 1;
  std::int64_t tokens = 0;
  int channels = 1;
  int W = 1;
  bool activation = true;
  std::int64_t state_stride = 0;  ///< from row to row of past and carried; 0 means channels
  /// If not 0, `group` neighbouring channels of x are contiguous, and those of the next group are
  /// `group_stride` farther; the groups of a token come before those of the next one. 0 means that x is
  /// dense.
  int group = 0;
  int group_stride = 0;

  /// Parts of kConvolvedTokens tokens; without tokens one, which carries the state on.
  [[nodiscard]] SAMESTATE_HOST_DEVICE std::int64_t parts() const {
    return tokens == 0 ? 1 : (tokens + kConvolvedTokens - 1) / kConvolvedTokens;
  }
  /// Where row i of the inputs that a sequence carries begins, in `past` and `carried`.
  [[nodiscard]] SAMESTATE_HOST_DEVICE std::int64_t state_row(std::int64_t b, std::int64_t i) const {
    return (b * (W - 1) + i) * (state_stride > 0 ? state_stride : channels);
  }
  [[nodiscard]] SAMESTATE_HOST_DEVICE std::int64_t x_stride() const {
    return group == 0 ? channels : channels / group * std::int64_t{group_stride};
  }
  /// A channel of a sequence's first token.
  [[nodiscard]] SAMESTATE_HOST_DEVICE const Operand* first_input(std::int64_t b, int channel) const {
    const int column = group == 0 ? channel : channel / group * group_stride + channel % group;
    return x + b * tokens * x_stride() + column;
  }
  /// Where input `t` of a sequence lies, t from 1 - W on.
  [[nodiscard]] SAMESTATE_HOST_DEVICE const Operand* input(std::int64_t b, std::int64_t t,
                                                           int channel) const {
    return t < 0 ? past + state_row(b, W - 1 + t) + channel : first_input(b, channel) + t * x_stride();
  }
};

inline constexpr int kConvolvedChannels =
    4;  ///< per thread: their weights and three blocks of threads fit the registers

/// kConvolvedChannels channels through one part, the window in registers: W as the template says, channels a multiple.
template <class Operand, int W>
SAMESTATE_DEVICE void convolve_vector(const ConvolutionParameters<Operand>& p, std::int64_t b,
                                      std::int64_t part, int channel) {
  constexpr int n = kConvolvedChannels;
  constexpr int kAhead = 16 / static_cast<int>(sizeof(Operand));  // tokens under way at once: 64 bytes
  using Elements = Vector<Operand, n>;
  const auto load = [](const Operand* from) { return *reinterpret_cast<const Elements*>(from); };
  float weight[W][n], bias[n];
  SAMESTATE_UNROLL
  for (int v = 0; v < W; ++v) {  // the n x W weights are W accesses
    const Elements some = load(p.kernel + static_cast<std::int64_t>(channel) * W + v * n);
    SAMESTATE_UNROLL
    for (int e = 0; e < n; ++e) weight[(v * n + e) % W][(v * n + e) / W] = element(some, e);
  }
  SAMESTATE_UNROLL
  for (int i = 0; i < n; ++i) bias[i] = p.bias != nullptr ? p.bias[channel + i] : 0.0F;
  const std::int64_t first = part * kConvolvedTokens;
  const std::int64_t last = first + kConvolvedTokens < p.tokens ? first + kConvolvedTokens : p.tokens;
  Elements window[W];  // window[j]: input t - W + 1 + j
  SAMESTATE_UNROLL
  for (int j = 1; j < W; ++j) window[j] = load(p.input(b, first - W + j, channel));
  const std::int64_t offset = b * p.tokens * p.channels + channel, stride = p.x_stride();
  const Operand* const x = p.first_input(b, channel);
  for (std::int64_t t = first; t < last; t += kAhead) {
    Elements next[kAhead];
    SAMESTATE_UNROLL
    for (int u = 0; u < kAhead; ++u) next[u] = t + u < last ? load(x + (t + u) * stride) : Elements{};
    SAMESTATE_UNROLL
    for (int u = 0; u < kAhead; ++u) {
      if (t + u >= last) break;
      SAMESTATE_UNROLL
      for (int j = 0; j + 1 < W; ++j) window[j] = window[j + 1];
      window[W - 1] = next[u];
      float y[n];
      SAMESTATE_UNROLL
      for (int i = 0; i < n; ++i) {
        y[i] = bias[i];
        SAMESTATE_UNROLL
        for (int j = 0; j < W; ++j) y[i] = fused(weight[j][i], element(window[j], i), y[i]);
        if (p.activation) y[i] = silu_for<Operand>(y[i]);
      }
      *reinterpret_cast<Elements*>(p.y + offset + (t + u) * p.channels) = narrowed<Operand>(y);
    }
  }
  if (last != p.tokens) return;
  SAMESTATE_UNROLL
  for (int j = 1; j < W; ++j)
    *reinterpret_cast<Elements*>(p.carried + p.state_row(b, j - 1) + channel) = window[j];
}

/// One channel through one part, any W.
template <class Operand>
SAMESTATE_DEVICE void convolve_channel(const ConvolutionParameters<Operand>& p, std::int64_t b,
                                       std::int64_t part, int channel) {
  const std::int64_t first = part * kConvolvedTokens;
  const std::int64_t last = first + kConvolvedTokens < p.tokens ? first + kConvolvedTokens : p.tokens;
  for (std::int64_t t = first; t < last; ++t) {
    float y = p.bias != nullptr ? p.bias[channel] : 0.0F;
    for (int j = 0; j < p.W; ++j)
      y = fused(widen(p.kernel[static_cast<std::int64_t>(channel) * p.W + j]),
                widen(*p.input(b, t - p.W + 1 + j, channel)), y);
    p.y[(b * p.tokens + t) * p.channels + channel] = narrow<Operand>(p.activation ? silu(y) : y);
  }
  if (last != p.tokens) return;
  for (int i = 0; i + 1 < p.W; ++i)
    p.carried[p.state_row(b, i) + channel] = *p.input(b, p.tokens - (p.W - 1) + i, channel);
}

/// W 0: any W and any channels, one a thread.
template <class Operand, int W>
struct ConvolvedPart {
  using Parameters = ConvolutionParameters<Operand>;
  static constexpr int n = W == 0 ? 1 : kConvolvedChannels;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) {
    return p.batch * p.parts() * (p.channels / n);
  }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t i) {
    const int threads = p.channels / n;
    const std::int64_t row = quotient(i, threads);
    const auto channel = static_cast<int>(i - row * threads) * n;
    const std::int64_t b = quotient(row, p.parts());
    const std::int64_t part = row - b * p.parts();
    if constexpr (W == 0) {
      convolve_channel(p, b, part, channel);
    } else {
      convolve_vector<Operand, W>(p, b, part, channel);
    }
  }
};

/// All of it, by the grid that fits channels and W.
template <class Operand>
void launch_convolution(const ConvolutionParameters<Operand>& p, cudaStream_t stream) {
  const auto aligned = [](const void* at) {
    return reinterpret_cast<std::uintptr_t>(at) % (kConvolvedChannels * sizeof(Operand)) == 0;
  };
  const bool vector = p.channels % kConvolvedChannels == 0 && p.state_stride % kConvolvedChannels == 0 &&
                      p.group % kConvolvedChannels == 0 && p.group_stride % kConvolvedChannels == 0 &&
                      aligned(p.x) && aligned(p.kernel) && aligned(p.past) && aligned(p.carried);
  if (vector && p.W == 4) return EachThread<ConvolvedPart<Operand, 4>, 128>::launch(p, stream);
  if (vector && p.W == 3) return EachThread<ConvolvedPart<Operand, 3>, 128>::launch(p, stream);
  if (vector && p.W == 2) return EachThread<ConvolvedPart<Operand, 2>, 128>::launch(p, stream);
  EachThread<ConvolvedPart<Operand, 0>>::launch(p, stream);
}

}  // namespace samestate::cuda

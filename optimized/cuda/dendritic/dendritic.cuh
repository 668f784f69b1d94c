#pragma once

#include <cstdint>

#include "optimized/cuda/pointwise/pointwise.cuh"

/// Parts of the dendritic layer: the overlap split of a head's channels into windows (DEND-25, P-12) and the router of its
/// branches (EQUATIONS 7.3, steps 2 to 4).
namespace samestate::cuda {

template <class Operand>
struct WindowParameters {
  const Operand* x = nullptr;      ///< [tokens, channels]
  const Operand* parts = nullptr;  ///< [tokens, count, width]
  Operand* windows = nullptr;      ///< [tokens, count, width] of x
  Operand* sum = nullptr;          ///< [tokens, channels] of the parts
  std::int64_t tokens = 0;
  int channels = 1;
  int count = 1;
  int width = 1;
  int stride = 1;
};

/// n adjacent channels of a token, into all windows that they lie in, and the sum of these windows' parts. n above 1 where it divides
/// channels, width and stride: then all of them lie in the same windows. What two neighbouring windows need is under way before the
/// first store; a channel in more of them waits for each one.
template <class Operand, int n>
struct WindowItem {
  using Parameters = WindowParameters<Operand>;
  using Elements = Vector<Operand, n>;

  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return p.tokens * (p.channels / n); }

  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t item) {
    const std::int64_t token = quotient(item, p.channels / n);
    const auto c = static_cast<int>(item - token * (p.channels / n)) * n;
    const int first = c < p.width ? 0 : (c - p.width) / p.stride + 1;
    const int last = c / p.stride < p.count ? c / p.stride : p.count - 1;
    // From a window to the next one the same channel is so much further.
    const std::int64_t apart = p.width - p.stride;
    const std::int64_t at = token * p.count * p.width + c + first * apart;
    const Elements x = load(p.x + token * p.channels + c);
    const Elements part = load(p.parts + at);
    const Elements next = load_if(first < last, p.parts + at + apart);
    float sum[n] = {};
    add(part, sum);
    store(p.windows + at, x);
    if (first < last) {
      add(next, sum);
      store(p.windows + at + apart, x);
    }
    for (int window = first + 2; window <= last; ++window) {
      const std::int64_t further = at + (window - first) * apart;
      add(load(p.parts + further), sum);
      store(p.windows + further, x);
    }
    store(p.sum + token * p.channels + c, narrowed<Operand>(sum));
  }

 private:
  static SAMESTATE_DEVICE Elements load(const Operand* from) {
    return *reinterpret_cast<const Elements*>(from);
  }
  /// Returns zeros unless `wanted`. Accesses of 16 bytes have no branch, since the loads after it would wait
  /// for it.
  static SAMESTATE_DEVICE Elements load_if(bool wanted, const Operand* from) {
    if constexpr (sizeof(Elements) == 16) {
      return load_settled<false>(reinterpret_cast<const Elements*>(from), wanted);
    } else {
      return wanted ? load(from) : Elements{};
    }
  }
  static SAMESTATE_DEVICE void store(Operand* to, const Elements& x) { *reinterpret_cast<Elements*>(to) = x; }
  static SAMESTATE_DEVICE void add(const Elements& part, float (&sum)[n]) {
    SAMESTATE_UNROLL
    for (int i = 0; i < n; ++i) sum[i] += element(part, i);
  }
};

inline constexpr int kRouterSlots = 3;   ///< candidates a lane: 32 x 3 >= 16 + 64
inline constexpr int kRouterWidth = 16;  ///< elements of q a lane: 32 x 16 = 512

template <class Operand>
struct RouterParameters {
  const Operand* q = nullptr;       ///< [rows, width], a row a token and head
  const Operand* router = nullptr;  ///< [candidates, width]
  Operand* omega = nullptr;         ///< [rows, shared + candidates]
  Operand* mask = nullptr;          ///< the same
  std::int64_t rows = 0;
  int width = 1;
  int candidates = 0;
  int shared = 1;
  int routed = 0;
};

/// The branches of one row by one warp: logits of all candidates, the `routed` largest, of equals the one with the lower
/// number, and weights that sum to one.
template <class Operand>
SAMESTATE_DEVICE void route(const RouterParameters<Operand>& p, std::int64_t row) {
  const int lane = lane_index();
  float logit[kRouterSlots] = {}, weight[kRouterSlots] = {};
  bool taken[kRouterSlots] = {};
  if (p.routed > 0) {
    float q[kRouterWidth];
    SAMESTATE_UNROLL
    for (int i = 0; i < kRouterWidth; ++i)
      q[i] = 32 * i + lane < p.width ? widen(p.q[row * p.width + 32 * i + lane]) : 0.0F;
    for (int c = 0; c < p.candidates; ++c) {
      float sum = 0.0F;
      SAMESTATE_UNROLL
      for (int i = 0; i < kRouterWidth; ++i) {
        if (32 * i + lane < p.width)
          sum = fused(q[i], widen(p.router[static_cast<std::int64_t>(c) * p.width + 32 * i + lane]), sum);
      }
      sum = warp_sum(sum);
      SAMESTATE_UNROLL
      for (int s = 0; s < kRouterSlots; ++s) logit[s] = c == 32 * s + lane ? sum : logit[s];
    }
  }
  float largest = 0.0F, sum = 0.0F;
  for (int n = 0; n < p.routed; ++n) {
    int best = p.candidates;
    float most = 0.0F;
    SAMESTATE_UNROLL
    for (int s = 0; s < kRouterSlots; ++s) {
      const int c = 32 * s + lane;
      if (c < p.candidates && !taken[s] && (best == p.candidates || logit[s] > most))
        best = c, most = logit[s];
    }
    SAMESTATE_UNROLL
    for (int mask = 16; mask > 0; mask /= 2) {
      const float other = shuffle_xor(most, mask);
      const int from =
          static_cast<int>(bits_of(shuffle_xor(float_of(static_cast<std::uint32_t>(best)), mask)));
      const bool better =
          from < p.candidates && (best == p.candidates || other > most || (other == most && from < best));
      most = better ? other : most;
      best = better ? from : best;
    }
    if (n == 0) largest = most;
    const float share = exponential(most - largest);
    sum += share;
    SAMESTATE_UNROLL
    for (int s = 0; s < kRouterSlots; ++s) {
      if (best == 32 * s + lane) taken[s] = true, weight[s] = share;
    }
  }
  // Shared and chosen branches each sum to one before they share the token.
  const float parts = (p.shared > 0 ? 1.0F : 0.0F) + (p.routed > 0 ? 1.0F : 0.0F);
  const std::int64_t first = row * (p.shared + p.candidates);
  for (int e = lane; e < p.shared; e += 32) {
    p.omega[first + e] = narrow<Operand>(1.0F / (static_cast<float>(p.shared) * parts));
    p.mask[first + e] = narrow<Operand>(1.0F);
  }
  SAMESTATE_UNROLL
  for (int s = 0; s < kRouterSlots; ++s) {
    const int c = 32 * s + lane;
    if (c >= p.candidates) continue;
    p.omega[first + p.shared + c] = narrow<Operand>(taken[s] ? weight[s] / (sum * parts) : 0.0F);
    p.mask[first + p.shared + c] = narrow<Operand>(taken[s] ? 1.0F : 0.0F);
  }
}

}  // namespace samestate::cuda

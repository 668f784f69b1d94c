#pragma once

#include <cstdint>

#include "optimized/cuda/dendritic/lists.cuh"
#include "optimized/cuda/pointwise/pointwise.cuh"

/// q and k of the tokens that use a branch (EQUATIONS 7.3, steps 7, 11 and 13), and what the convolutions carry on.
namespace samestate::cuda {

/// One of q and k through its convolution.
template <class Operand>
struct ExpandedRows {
  const Operand* x = nullptr;       ///< [H, B, T, E, d], zero on pads
  const Operand* kernel = nullptr;  ///< [H d, W]
  const Operand* past = nullptr;    ///< [B, E, W - 1, H d]
  Operand* carried = nullptr;       ///< the same, afterwards
  Operand* y = nullptr;             ///< [B, T, H, slots, d], convolved
  float* factor = nullptr;          ///< [B, T, H, slots, N], of each window: what makes its length one
};

template <class Operand>
struct BranchRowParameters {
  DendriticShape shape;
  const int* branch = nullptr;  ///< [B, T, H, slots]
  ExpandedRows<Operand> q;
  ExpandedRows<Operand> k;
  int together = 1;  ///< slot rows whose squares a warp keeps at once
};

/// n channels from `c` on of token t of sequence b, branch e, head h; t from 1 - W on.
template <class Operand, int n>
SAMESTATE_DEVICE Vector<Operand, n> expanded_input(const DendriticShape& s, const ExpandedRows<Operand>& x,
                                                   std::int64_t b, std::int64_t t, int e, int h, int c) {
  const Operand* from =
      t < 0 ? x.past + ((b * s.branches() + e) * (s.taps - 1) + s.taps - 1 + t) * s.heads * s.channels +
                  h * s.channels
            : x.x + (((h * s.batch + b) * s.tokens + t) * s.branches() + e) * s.channels;
  return *reinterpret_cast<const Vector<Operand, n>*>(from + c);
}

/// The weights for the inputs of n channels: `taps` of them per channel, read one after the other in whole
/// accesses.
template <class Operand, int n, int taps>
struct ChannelWeights {
  Vector<Operand, n> parts[taps];
  SAMESTATE_DEVICE void load(const Operand* from) {
    SAMESTATE_UNROLL
    for (int j = 0; j < taps; ++j) parts[j] = *reinterpret_cast<const Vector<Operand, n>*>(from + j * n);
  }
  [[nodiscard]] SAMESTATE_DEVICE float at(int channel, int tap) const {
    return element(parts[(channel * taps + tap) / n], (channel * taps + tap) % n);
  }
};

/// A warp takes rows of slots for a few tokens and a head, of q or k: their convolutions, with n channels per
/// lane, and the factors of their windows. n is above 1 if it divides d; `each` neighbouring squares are one
/// sum if that divides the windows' places too. kTaps is the number of taps of the convolution; models have
/// four, and 0 means any number.
template <class Operand, int n, int each, int kTaps>
struct BranchRowBody {
  using Parameters = BranchRowParameters<Operand>;
  static constexpr int kThreads = 256;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kTokens = 4;
  static_assert(each == 1 || each == n);

  static std::int64_t items(const DendriticShape& s) {
    return 2 * s.batch * ((s.tokens + kTokens - 1) / kTokens) * s.heads;
  }
  /// Returns as many rows as fit into 64 KB, eight at most.
  static int rows_together(const DendriticShape& s) {
    const int bytes_of_row = kWarps * (s.channels / each) * static_cast<int>(sizeof(float));
    const int fit = 65536 / bytes_of_row;
    return fit < 1 ? 1 : fit > 8 ? 8 : fit;
  }
  static std::size_t shared_bytes(const Parameters& p) {
    return static_cast<std::size_t>(kWarps * p.together * (p.shape.channels / each)) * sizeof(float);
  }

  /// A slot row of an item: of a token after the other all slots.
  struct Row {
    std::int64_t b, token, slot_row;
    int h, slot;
    SAMESTATE_DEVICE void go_on(const DendriticShape& s) {
      ++slot_row;
      if (++slot < s.slots()) return;
      slot = 0;
      ++token;
      slot_row += static_cast<std::int64_t>(s.heads - 1) * s.slots();
    }
  };

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    const DendriticShape& s = p.shape;
    const int sums = s.channels / each;
    float* const lines = reinterpret_cast<float*>(shared) + warp_index() * p.together * sums;
    const std::int64_t blocks = (s.tokens + kTokens - 1) / kTokens, items = 2 * s.batch * blocks * s.heads;
    for (std::int64_t i = block_index() * kWarps + warp_index(); i < items; i += grid_blocks() * kWarps) {
      const std::int64_t of_tokens = quotient(i / 2, s.heads);
      Row row{};
      row.h = static_cast<int>(i / 2 - of_tokens * s.heads);
      row.b = quotient(of_tokens, blocks);
      row.token = (of_tokens - row.b * blocks) * kTokens;
      row.slot_row = ((row.b * s.tokens + row.token) * s.heads + row.h) * s.slots();
      const std::int64_t left = s.tokens - row.token;
      const int rows = static_cast<int>(left < kTokens ? left : kTokens) * s.slots();
      for (int first = 0; first < rows; first += p.together) {
        const int count = first + p.together < rows ? p.together : rows - first;
        row = some_rows(p, i % 2 == 0 ? p.q : p.k, row, count, lines);
      }
    }
  }

 private:
  using Elements = Vector<Operand, n>;

  /// The inputs of a row's channels from `c` on.
  template <int taps>
  static SAMESTATE_DEVICE void load_inputs(const DendriticShape& s, const ExpandedRows<Operand>& x,
                                           const Row& row, int e, int c, Elements (&inputs)[taps]) {
    if (row.token >= taps - 1) {
      const Operand* from =
          x.x + (((row.h * s.batch + row.b) * s.tokens + row.token) * s.branches() + e) * s.channels + c;
      const std::int64_t apart = static_cast<std::int64_t>(s.branches()) * s.channels;
      SAMESTATE_UNROLL
      for (int j = taps - 1; j >= 0; --j, from -= apart) inputs[j] = *reinterpret_cast<const Elements*>(from);
    } else {
      SAMESTATE_UNROLL
      for (int j = 0; j < taps; ++j)
        inputs[j] = expanded_input<Operand, n>(s, x, row.b, row.token - taps + 1 + j, e, row.h, c);
    }
  }

  /// Computes `count` rows from `begin` on; returns the one after them.
  static SAMESTATE_DEVICE Row some_rows(const Parameters& p, const ExpandedRows<Operand>& x, const Row& begin,
                                        int count, float* lines) {
    const DendriticShape& s = p.shape;
    const int sums = s.channels / each;
    for (int c = lane_index() * n; c < s.channels; c += 32 * n) {
      const Operand* const kernel = x.kernel + static_cast<std::int64_t>(begin.h * s.channels + c) * s.taps;
      ChannelWeights<Operand, n, kTaps == 0 ? 1 : kTaps> weights{};
      if constexpr (kTaps != 0) weights.load(kernel);
      Row row = begin;
      float* line = lines + c / each;
      for (int r = 0; r < count; ++r, row.go_on(s), line += sums) {
        const int e = p.branch[row.slot_row];
        float y[n] = {};
        if constexpr (kTaps != 0) {
          Elements inputs[kTaps];
          load_inputs(s, x, row, e, c, inputs);
          SAMESTATE_UNROLL
          for (int j = 0; j < kTaps; ++j) {
            SAMESTATE_UNROLL
            for (int i = 0; i < n; ++i) y[i] = fused(weights.at(i, j), element(inputs[j], i), y[i]);
          }
        } else {
          for (int j = 0; j < s.taps; ++j) {
            const Elements input =
                expanded_input<Operand, n>(s, x, row.b, row.token - s.taps + 1 + j, e, row.h, c);
            SAMESTATE_UNROLL
            for (int i = 0; i < n; ++i) y[i] = fused(widen(kernel[i * s.taps + j]), element(input, i), y[i]);
          }
        }
        SAMESTATE_UNROLL
        for (int i = 0; i < n; ++i) y[i] = silu_for<Operand>(y[i]);
        const Elements kept = narrowed<Operand>(y);
        *reinterpret_cast<Elements*>(x.y + row.slot_row * s.channels + c) = kept;
        SAMESTATE_UNROLL
        for (int i = 0; i < n; i += each) {
          float squares = 0.0F;
          SAMESTATE_UNROLL
          for (int j = i; j < i + each; ++j) squares = fused(element(kept, j), element(kept, j), squares);
          line[i / each] = squares;
        }
      }
    }
    warp_barrier();
    Row row = begin;
    for (int r = 0; r < count; ++r, row.go_on(s)) {
      for (int window = 0; window < s.windows; ++window) {
        float squares = 0.0F;
        for (int i = lane_index(); i < s.width / each; i += 32)
          squares += lines[r * sums + window * (s.stride / each) + i];
        const float factor = inverse_root(warp_sum(squares) + 1e-6F);
        if (lane_index() == 0) x.factor[row.slot_row * s.windows + window] = factor;
      }
    }
    warp_barrier();
    return row;
  }
};

/// Launches the grid that fits the convolution and the windows.
template <class Operand>
void launch_branch_rows(BranchRowParameters<Operand> p, cudaStream_t stream) {
  constexpr int n = 16 / static_cast<int>(sizeof(Operand));
  const DendriticShape& s = p.shape;
  const auto by = [&]<class Body>() {
    p.together = Body::rows_together(s);
    launch<Body>(blocks_of(Body::items(s), Body::kWarps), Body::shared_bytes(p), p, stream);
  };
  if (s.channels % n != 0) return by.template operator()<BranchRowBody<Operand, 1, 1, 0>>();
  if (s.taps != 4) return by.template operator()<BranchRowBody<Operand, n, 1, 0>>();
  if (s.stride % n != 0 || s.width % n != 0) return by.template operator()<BranchRowBody<Operand, n, 1, 4>>();
  by.template operator()<BranchRowBody<Operand, n, n, 4>>();
}

/// The last W - 1 inputs of the convolutions of q and k, n channels a thread. n above 1 where it divides d.
template <class Operand, int n>
struct CarriedElements {
  using Parameters = BranchRowParameters<Operand>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) {
    const DendriticShape& s = p.shape;
    return 2 * s.batch * s.branches() * (s.taps - 1) * s.heads * (s.channels / n);
  }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t item) {
    const DendriticShape& s = p.shape;
    const std::int64_t half = items(p) / 2;
    const ExpandedRows<Operand>& x = item < half ? p.q : p.k;
    const std::int64_t i = item < half ? item : item - half;
    const int groups = s.channels / n, before = s.taps - 1;
    const std::int64_t of_heads = quotient(i, groups);
    const std::int64_t row = quotient(of_heads, s.heads);  // [B, E, W - 1]
    const std::int64_t of_branches = quotient(row, before);
    const std::int64_t b = quotient(of_branches, s.branches());
    const auto c = static_cast<int>(i - of_heads * groups) * n;
    const auto h = static_cast<int>(of_heads - row * s.heads);
    const auto e = static_cast<int>(of_branches - b * s.branches());
    *reinterpret_cast<Vector<Operand, n>*>(x.carried + i * n) =
        expanded_input<Operand, n>(s, x, b, s.tokens - before + (row - of_branches * before), e, h, c);
  }
};

}  // namespace samestate::cuda

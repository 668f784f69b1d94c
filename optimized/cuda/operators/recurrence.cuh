#pragma once

#include <cmath>
#include <cstdint>

#include "optimized/cuda/operators/pointwise.cuh"
#include "optimized/cuda/operators/product.cuh"
#include "optimized/cuda/operators/row_parts.cuh"
#include "optimized/cuda/operators/segments.cuh"
#include "optimized/cuda/operators/warp_extremes.cuh"

/// Recurrences S_t = gamma S_{t-1} + k_t v_t^T, o_t = S_t^T q_t of a matrix a head, gamma constant (1 or RetNet's). Sums are fp32. A
/// warp holds the columns of a tile and goes through the tokens of a segment; sequences that give too few warps are cut into
/// segments, whose own states are then summed up to the state before each.
namespace samestate::cuda {

inline constexpr int kRecurrenceTile = 32;     ///< tokens that tensor cores take at once
inline constexpr int kRecurrenceColumns = 64;  ///< of a state, by a block of theirs

/// What becomes of S_t^T q_t.
enum class RecurrenceOutput {
  over_sums,  ///< over z_t . q_t, z_t = z_{t-1} + k_t
  over_root,  ///< over the root of s_t = gamma s_{t-1} + 1, by which states that come and go are divided too
  raw,        ///< nothing, in fp32
  rounded     ///< nothing but the contract's rounding
};

template <class Operand>
struct RecurrenceParameters {
  const Operand* q = nullptr;  ///< [batch, tokens, heads, dk], and k
  const Operand* k = nullptr;
  const Operand* v = nullptr;     ///< [batch, tokens, heads, dv]
  const float* state = nullptr;   ///< [batch, heads, dk, dv]; null: zeros
  const float* sums = nullptr;    ///< z [batch, heads, dk], or s [batch, heads]
  float* carried = nullptr;       ///< [segments, batch, heads, dk, dv] of scratch
  float* carried_sums = nullptr;  ///< [segments, batch, heads, dk], of z
  Operand* o = nullptr;           ///< [batch, tokens, heads, dv]
  float* raw = nullptr;           ///< the same
  float* final_state = nullptr;   ///< as state; null: nobody wants it
  float* final_sums = nullptr;    ///< as sums
  std::int64_t batch = 0;
  std::int64_t tokens = 0;
  std::int64_t segment = 1;   ///< tokens
  std::int64_t segments = 1;  ///< at least 1
  int heads = 1;
  int dk = 1;
  int dv = 1;
  bool decays = false;  ///< by RetNet's gammas
  bool whole = false;   ///< every token reads the state behind the last one
  RecurrenceOutput output = RecurrenceOutput::rounded;
  int row_lanes = 1;   ///< of a warp, by rows of the state: 16 a lane; the others by columns: 4 a lane
  int stage = 16;      ///< tokens in shared memory at a time, twice
  bool tiled = false;  ///< on tensor cores, by recurrence_tiles.cuh

  [[nodiscard]] SAMESTATE_HOST_DEVICE std::int64_t states() const { return batch * heads; }
  [[nodiscard]] SAMESTATE_HOST_DEVICE int rows() const { return 16 * row_lanes; }
  [[nodiscard]] SAMESTATE_HOST_DEVICE int columns() const { return 32 / row_lanes * 4; }
  [[nodiscard]] SAMESTATE_HOST_DEVICE int tiles() const { return (dv + columns() - 1) / columns(); }
  /// Elements of a stage.
  [[nodiscard]] SAMESTATE_HOST_DEVICE int staged() const { return stage * (2 * rows() + columns()); }
};

/// gamma of a head: 1 - 2^(-5-h), a number of fp32 for the heads that there are.
SAMESTATE_DEVICE float retention_decay(bool decays, int head) {
  return decays ? 1.0F - float_of(static_cast<std::uint32_t>(122 - head) << 23) : 1.0F;
}

/// gamma^n and 1 + gamma + ... + gamma^(n-1). In fp64: squaring would double a rounding at every step.
struct DecayPowers {
  double power = 1.0;
  double sum = 0.0;
};
SAMESTATE_DEVICE DecayPowers decay_powers(float gamma, std::int64_t n) {
  DecayPowers of;
  if (gamma == 1.0F) return {1.0, static_cast<double>(n)};
  int bits = 0;
  while ((n >> bits) > 0) ++bits;
  for (int bit = bits - 1; bit >= 0; --bit) {
    of.sum *= 1.0 + of.power;
    of.power *= of.power;
    if (((n >> bit) & 1) != 0) {
      of.sum = of.sum * static_cast<double>(gamma) + 1.0;
      of.power *= static_cast<double>(gamma);
    }
  }
  return of;
}

/// By what a state is multiplied when it comes: the root of s, and nothing where no token follows.
template <class Operand>
SAMESTATE_DEVICE float state_scale(const RecurrenceParameters<Operand>& p, std::int64_t of) {
  if (p.output != RecurrenceOutput::over_root || p.tokens == 0) return 1.0F;
  const float s = p.sums[of];
  return s > 0.0F ? s * inverse_root(s) : 0.0F;
}

/// The state before each segment but the first, from those that the segments leave by themselves; in place, that of segment n where the
/// one left by n - 1 was. Where the parameters say `whole`, the state behind all tokens to final_state.
template <class Operand>
struct CarryStates {
  using Parameters = RecurrenceParameters<Operand>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) {
    return p.states() * p.dk * (p.dv + (p.carried_sums != nullptr ? 1 : 0));
  }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t item) {
    const std::int64_t elements = p.states() * p.dk * p.dv;
    if (item >= elements) {
      carry_state(p.carried_sums + item - elements, p.states() * p.dk, p.segments - 1,
                  p.sums[item - elements], [](std::int64_t) { return 1.0F; });
      return;
    }
    const std::int64_t of = quotient(item, std::int64_t{p.dk} * p.dv);
    const float gamma = retention_decay(p.decays, static_cast<int>(of % p.heads));
    const float before = p.state == nullptr ? 0.0F : p.state[item] * state_scale(p, of);
    const auto decay = static_cast<float>(decay_powers(gamma, p.segment).power);
    const float last = carry_state(p.carried + item, elements, p.whole ? p.segments : p.segments - 1, before,
                                   [&](std::int64_t) { return decay; });
    if (p.whole) p.final_state[item] = last;
  }
};

/// A warp's tile of columns through a segment. `writes`: tokens change the state. `reads`: they read it; without, segments begin
/// from zero and leave their own states. Lane l holds row quads g, g + G, g + 2 G, g + 3 G, g = l % G, of four columns.
template <class Operand, bool writes, bool reads>
struct RecurrenceSegments {
  using Parameters = RecurrenceParameters<Operand>;
  static constexpr int kThreads = 32;
  using Quads = Vector<Operand, 4>;

  /// Where a warp is.
  struct Tile {
    std::int64_t of = 0;  ///< state
    std::int64_t segment = 0;
    std::int64_t first = 0;  ///< token
    std::int64_t tokens = 0;
    std::int64_t row = 0;  ///< of q, k, v: that of the first token
    int head = 0;
    int column = 0;
    int width = 0;  ///< columns that exist
  };

  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) {
    return p.states() * p.tiles() * (reads || p.whole ? p.segments : p.segments - 1);
  }
  static void launch(const Parameters& p, cudaStream_t stream) {
    cuda::launch<RecurrenceSegments>(blocks_of(items(p), 1),
                                     2 * static_cast<std::size_t>(p.staged()) * sizeof(Operand), p, stream);
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    for (std::int64_t item = block_index(); item < items(p); item += grid_blocks()) {
      Tile at;
      const std::int64_t rest = quotient(item, p.tiles());
      at.segment = quotient(rest, p.states());
      at.of = rest - at.segment * p.states();
      at.column = static_cast<int>(item - rest * p.tiles()) * p.columns();
      at.width = p.dv - at.column < p.columns() ? p.dv - at.column : p.columns();
      const std::int64_t sequence = quotient(at.of, p.heads);
      at.head = static_cast<int>(at.of - sequence * p.heads);
      at.first = at.segment * p.segment;
      at.tokens = p.tokens - at.first < p.segment ? p.tokens - at.first : p.segment;
      at.row = sequence * p.tokens + at.first;
      go_through(p, at, reinterpret_cast<Operand*>(shared));
      warp_barrier();
    }
  }

 private:
  static SAMESTATE_DEVICE void go_through(const Parameters& p, const Tile& at, Operand* shared) {
    const int lane = lane_index(), g = lane % p.row_lanes, columns_at = lane / p.row_lanes * 4;
    const float gamma = retention_decay(p.decays, at.head);
    float S[4][4][4], z[4][4] = {};
    load_state(p, at, g, columns_at, S);
    const bool with_z = p.output == RecurrenceOutput::over_sums;
    if (with_z) load_sums(p, at, z);
    float s = 0.0F;
    if (reads && p.output == RecurrenceOutput::over_root) {
      const DecayPowers before = decay_powers(gamma, at.first);
      s = static_cast<float>(before.power * static_cast<double>(p.sums[at.of]) + before.sum);
    }
    // Lane i knows gamma^i: in a stage the state is over gamma^i, so that only values are multiplied, and outputs.
    const auto power = static_cast<float>(decay_powers(gamma, lane).power);
    const float inverse_power = 1.0F / power;
    if (p.rows() != p.dk || at.width != p.columns()) {
      for (int i = lane; i < 2 * p.staged(); i += 32) shared[i] = narrow<Operand>(0.0F);
      warp_barrier();
    }
    load(p, at, 0, shared);
    for (std::int64_t begin = 0, turn = 0; begin < at.tokens; begin += p.stage, ++turn) {
      load(p, at, begin + p.stage, shared + (turn + 1) % 2 * p.staged());
      copies_wait<1>();
      warp_barrier();
      const Operand* const q = shared + turn % 2 * p.staged();
      const Operand* const k = q + p.stage * p.rows();
      const Operand* const v = k + p.stage * p.rows();
      const int n = at.tokens - begin < p.stage ? static_cast<int>(at.tokens - begin) : p.stage;
      if (p.decays) scale(gamma, S);
      for (int i = 0; i < n; ++i) {
        const float up = shuffle(power, i), down = shuffle(inverse_power, i);
        float values[4], o[4] = {};
        if constexpr (writes) {
          const Quads quad = quads(v + i * p.columns() + columns_at);
          SAMESTATE_UNROLL
          for (int c = 0; c < 4; ++c) values[c] = element(quad, c) * down;
        }
        SAMESTATE_UNROLL
        for (int j = 0; j < 4; ++j) {
          const int at_quad = i * p.rows() + 4 * (j * p.row_lanes + g);
          Quads keys{}, queries{};
          if constexpr (writes) keys = quads(k + at_quad);
          if constexpr (reads) queries = quads(q + at_quad);
          SAMESTATE_UNROLL
          for (int e = 0; e < 4; ++e) {
            SAMESTATE_UNROLL
            for (int c = 0; c < 4; ++c) {
              if constexpr (writes) S[j][e][c] = fused(element(keys, e), values[c], S[j][e][c]);
              if constexpr (reads) o[c] = fused(element(queries, e), S[j][e][c], o[c]);
            }
          }
        }
        float denominator = 0.0F;
        if (with_z) denominator = add_keys(p, q + i * p.rows(), k + i * p.rows(), z);
        if constexpr (reads) {
          float factor = up;
          if (with_z) {
            factor = 1.0F / warp_sum(denominator);
          } else if (p.output == RecurrenceOutput::over_root) {
            s = fused(gamma, s, 1.0F);
            factor = up * inverse_root(s);
          }
          for (int mask = 1; mask < p.row_lanes; mask *= 2) {
            SAMESTATE_UNROLL
            for (int c = 0; c < 4; ++c) o[c] += shuffle_xor(o[c], mask);
          }
          SAMESTATE_UNROLL
          for (int c = 0; c < 4; ++c) o[c] *= factor;
          const std::int64_t to = ((at.row + begin + i) * p.heads + at.head) * p.dv + at.column + columns_at;
          if (g == 0) {
            if (p.output == RecurrenceOutput::raw) {
              store_columns(p.raw + to, at.width - columns_at, o);
            } else {
              store_columns(p.o + to, at.width - columns_at, o);
            }
          }
        }
      }
      if (p.decays) scale(shuffle(power, n - 1), S);
      warp_barrier();  // the next stage but one takes this memory
    }
    copies_wait<0>();
    if constexpr (writes) leave(p, at, g, columns_at, s, S, z);
  }

  static SAMESTATE_DEVICE Quads quads(const Operand* at) { return *reinterpret_cast<const Quads*>(at); }

  static SAMESTATE_DEVICE void scale(float by, float (&S)[4][4][4]) {
    SAMESTATE_UNROLL
    for (int j = 0; j < 4; ++j) {
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) {
        SAMESTATE_UNROLL
        for (int c = 0; c < 4; ++c) S[j][e][c] *= by;
      }
    }
  }

  /// z + k; this lane's part of z . q.
  static SAMESTATE_DEVICE float add_keys(const Parameters& p, const Operand* q, const Operand* k,
                                         float (&z)[4][4]) {
    float sum = 0.0F;
    SAMESTATE_UNROLL
    for (int m = 0; m < 4; ++m) {
      const int quad = lane_index() + 32 * m;
      if (quad >= 4 * p.row_lanes) break;
      const Quads keys = quads(k + 4 * quad), queries = quads(q + 4 * quad);
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) {
        z[m][e] += element(keys, e);
        sum = fused(element(queries, e), z[m][e], sum);
      }
    }
    return sum;
  }

  /// The rows of the tokens from `begin` of the segment, as they are stored; what lies behind dk and dv stays zero.
  static SAMESTATE_DEVICE void load(const Parameters& p, const Tile& at, std::int64_t begin, Operand* to) {
    if (begin < at.tokens) {
      const int n = at.tokens - begin < p.stage ? static_cast<int>(at.tokens - begin) : p.stage;
      const std::int64_t head = (at.row + begin) * p.heads + at.head;
      Operand* const k = to + p.stage * p.rows();
      if constexpr (reads) load_rows(to, p.rows(), p.q + head * p.dk, p.heads * p.dk, n, p.dk);
      if constexpr (writes) {
        load_rows(k, p.rows(), p.k + head * p.dk, p.heads * p.dk, n, p.dk);
        load_rows(k + p.stage * p.rows(), p.columns(), p.v + head * p.dv + at.column, p.heads * p.dv, n,
                  at.width);
      }
    }
    copies_commit();
  }
  static SAMESTATE_DEVICE void load_rows(Operand* to, int to_stride, const Operand* from, int stride,
                                         int rows, int width) {
    constexpr int n = 16 / static_cast<int>(sizeof(Operand));
    if (reinterpret_cast<std::uintptr_t>(from) % 16 == 0 && stride % n == 0 && width % n == 0) {
      const int pieces = width / n;
      for (int i = lane_index(); i < rows * pieces; i += 32) {
        const int row = i / pieces, piece = (i - row * pieces) * n;
        copy_async_16(to + row * to_stride + piece, from + std::int64_t{row} * stride + piece);
      }
      return;
    }
    for (int i = lane_index(); i < rows * width; i += 32) {
      const int row = i / width, column = i - row * width;
      to[row * to_stride + column] = from[std::int64_t{row} * stride + column];
    }
  }

  template <class T>
  static SAMESTATE_DEVICE void store_columns(T* to, int count, const float (&x)[4]) {
    if (count >= 4) {
      store_adjacent(to, x);
      return;
    }
    SAMESTATE_UNROLL
    for (int c = 0; c < 4; ++c) {
      if (c < count) to[c] = narrow<T>(x[c]);
    }
  }

  /// Element of a [states, dk, dv] at which row quad j of this lane begins.
  static SAMESTATE_DEVICE std::int64_t state_at(const Parameters& p, const Tile& at, int row,
                                                int columns_at) {
    return (at.of * p.dk + row) * p.dv + at.column + columns_at;
  }

  static SAMESTATE_DEVICE void load_state(const Parameters& p, const Tile& at, int g, int columns_at,
                                          float (&S)[4][4][4]) {
    const bool carried = reads && writes && at.segment > 0;
    const float* const from =
        carried ? p.carried + (at.segment - 1) * p.states() * p.dk * p.dv : (reads ? p.state : nullptr);
    const float factor = carried || from == nullptr ? 1.0F : state_scale(p, at.of);
    const int left = at.width - columns_at;
    SAMESTATE_UNROLL
    for (int j = 0; j < 4; ++j) {
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int row = 4 * (j * p.row_lanes + g) + e;
        const bool there = from != nullptr && row < p.dk && left > 0;
        const float* const x = there ? from + state_at(p, at, row, columns_at) : nullptr;
        if (left >= 4 && reinterpret_cast<std::uintptr_t>(x) % 16 == 0) {
          const auto quad = load_settled<false>(reinterpret_cast<const Vector<float, 4>*>(x), there);
          SAMESTATE_UNROLL
          for (int c = 0; c < 4; ++c) S[j][e][c] = element(quad, c) * factor;
        } else {
          SAMESTATE_UNROLL
          for (int c = 0; c < 4; ++c) S[j][e][c] = there && c < left ? x[c] * factor : 0.0F;
        }
      }
    }
  }

  static SAMESTATE_DEVICE void load_sums(const Parameters& p, const Tile& at, float (&z)[4][4]) {
    if constexpr (!reads) return;
    const float* const from = at.segment > 0 ? p.carried_sums + (at.segment - 1) * p.states() * p.dk : p.sums;
    each_sum(p, [&](int row, int m, int e) { z[m][e] = from[at.of * p.dk + row]; });
  }
  /// Calls `visit(row, m, e)` for the rows that this lane has of z.
  template <class Visit>
  static SAMESTATE_DEVICE void each_sum(const Parameters& p, Visit&& visit) {
    SAMESTATE_UNROLL
    for (int m = 0; m < 4; ++m) {
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int row = 4 * (lane_index() + 32 * m) + e;
        if (row < p.dk) visit(row, m, e);
      }
    }
  }

  /// The state behind the segment, where somebody wants it.
  static SAMESTATE_DEVICE void leave(const Parameters& p, const Tile& at, int g, int columns_at, float s,
                                     float (&S)[4][4][4], float (&z)[4][4]) {
    const bool last = at.segment == p.segments - 1;
    if (reads && (!last || p.final_state == nullptr)) return;
    const std::int64_t behind = at.segment * p.states() * p.dk;
    float* const to = reads ? p.final_state : p.carried + behind * p.dv;
    const bool over_root = reads && p.output == RecurrenceOutput::over_root;
    if (over_root && p.tokens > 0) scale(inverse_root(s), S);
    SAMESTATE_UNROLL
    for (int j = 0; j < 4; ++j) {
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int row = 4 * (j * p.row_lanes + g) + e;
        if (row < p.dk && at.width > columns_at)
          store_columns(to + state_at(p, at, row, columns_at), at.width - columns_at, S[j][e]);
      }
    }
    if (at.column > 0) return;
    if (over_root && lane_index() == 0) p.final_sums[at.of] = s;
    if (p.output != RecurrenceOutput::over_sums) return;
    float* const sums = reads ? p.final_sums : p.carried_sums + behind;
    each_sum(p, [&](int row, int m, int e) { sums[at.of * p.dk + row] = z[m][e]; });
  }
};

template <class Operand>
struct RowScaleParameters {
  const float* x = nullptr;  ///< [rows, width]
  Operand* y = nullptr;
  std::int64_t rows = 0;
  int width = 1;
};

/// The power of 2 that takes the number of these bits, without a sign, to [1, 2), one from 2^127 on to [2, 4); 1 of one below
/// 2^-126, an infinity and NaN.
SAMESTATE_DEVICE float power_to_one(std::uint32_t bits) {
  const std::uint32_t exponent = bits >> 23;
  if (exponent == 0 || exponent == 255) return 1.0F;
  return float_of((exponent > 252 ? 1 : 254 - exponent) << 23);
}

/// RetNet's norm of a head without epsilon: a row over its root mean square. A row a warp, four columns a lane.
template <class Operand>
struct ScaleRows {
  using Parameters = RowScaleParameters<Operand>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return p.rows; }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t row) {
    constexpr int kLoads = 4;  // 512 columns
    const float* const from = p.x + row * p.width;
    Operand* const to = p.y + row * p.width;
    const bool vector = p.width % 4 == 0;
    float x[kLoads][4] = {};
    std::uint32_t largest = 0;
    SAMESTATE_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      const int column = 128 * i + 4 * lane_index();
      if (128 * i >= p.width) break;
      const auto quad = load_part<float, 4>(from, column, p.width, vector);
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) {
        x[i][e] = element(quad, e);
        const std::uint32_t size = bits_of(x[i][e]) & 0x7fffffffU;
        largest = size > largest ? size : largest;
      }
    }
    // Rows are not divided before (EQ-11), so that their squares may be no fp32 numbers: a power of 2 takes the largest to [1, 2).
    const float scale = power_to_one(warp_largest(largest));
    float squares = 0.0F;
    SAMESTATE_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      SAMESTATE_UNROLL
      for (float& e : x[i]) {
        e *= scale;
        squares = fused(e, e, squares);
      }
    }
    const float factor = inverse_root(warp_sum(squares) / static_cast<float>(p.width));
    SAMESTATE_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      if (128 * i >= p.width) break;
      SAMESTATE_UNROLL
      for (float& e : x[i]) e *= factor;
      store_part(to, 128 * i + 4 * lane_index(), p.width, vector, x[i]);
    }
  }
};

}  // namespace samestate::cuda

#pragma once

#include <cstdint>

#include "optimized/cuda/recurrence/recurrence.cuh"

/// Recurrences token by token, by FMA: the state of a tile of columns in the registers of a block.
namespace samestate::cuda {

/// A block's tile of columns through a segment. `writes`: tokens change the state. `reads`: they read it; without, segments begin
/// from zero and leave their own states. A lane holds row quads g, g + G, g + 2 G ... of four columns, where G row lanes of all warps
/// share out the rows. One warp wants no barrier; several have wide accesses to a state that is the call's whole work.
template <class Operand, bool writes, bool reads, int warps = 1, int quads_held = 4>
struct RecurrenceSegments {
  using Parameters = RecurrenceParameters<Operand>;
  static constexpr int kThreads = 32 * warps;
  static constexpr int kResidentBlocks = warps == 1 ? 1 : 3;
  static constexpr int kSums = warps == 1 ? 4 : 1;  ///< quads of z that a thread has
  static_assert(warps == 1 || (writes && reads));
  using State = float[quads_held][4][4];
  using Quads = Vector<Operand, 4>;

  /// Where a block is.
  struct Tile {
    std::int64_t of = 0;  ///< state
    std::int64_t segment = 0;
    std::int64_t first = 0;  ///< token
    std::int64_t tokens = 0;
    std::int64_t row = 0;  ///< the row of the first token in q, k and v
    int head = 0;
    int column = 0;
    int width = 0;  ///< columns that exist
  };

  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) {
    return p.states() * p.tiles() * (reads || p.whole ? p.segments : p.segments - 1);
  }
  static void launch(const Parameters& p, cudaStream_t stream) {
    cuda::launch<RecurrenceSegments>(blocks_of(items(p), 1), shared_bytes(p), p, stream);
  }

  static std::size_t shared_bytes(const Parameters& p) {
    const std::size_t partial = warps == 1 ? 0 : warps * (p.columns() + 1) + 1;
    return 2 * static_cast<std::size_t>(p.staged()) * sizeof(Operand) +
           static_cast<std::size_t>(p.stage) * partial * sizeof(float);
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
      meet();
    }
  }

 private:
  static SAMESTATE_DEVICE void meet() {
    if constexpr (warps == 1) {
      warp_barrier();
    } else {
      block_barrier();
    }
  }

  /// The warps' results for a stage's tokens: [warps, stage, columns] parts of o, [warps, stage] of z . q,
  /// [stage] factors.
  struct Parts {
    float* o;
    float* denominators;
    float* factors;
    static SAMESTATE_DEVICE Parts of(const Parameters& p, Operand* shared) {
      float* const o = reinterpret_cast<float*>(shared + 2 * p.staged());
      float* const denominators = o + warps * p.stage * p.columns();
      return {o, denominators, denominators + warps * p.stage};
    }
  };

  static SAMESTATE_DEVICE void go_through(const Parameters& p, const Tile& at, Operand* shared) {
    const int lane = lane_index(), columns_at = lane / p.row_lanes * 4;
    const int g = warp_index() * p.row_lanes + lane % p.row_lanes;
    const float gamma = retention_decay(p.decays, at.head);
    const Parts parts = Parts::of(p, shared);
    if (p.rows() != p.dk || at.width != p.columns()) {
      for (int i = thread_index(); i < 2 * p.staged(); i += kThreads) shared[i] = narrow<Operand>(0.0F);
      meet();
    }
    load(p, at, 0, shared);
    State S;
    float z[kSums][4] = {};
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
    for (std::int64_t begin = 0, turn = 0; begin < at.tokens; begin += p.stage, ++turn) {
      load(p, at, begin + p.stage, shared + (turn + 1) % 2 * p.staged());
      copies_wait<1>();
      meet();
      const Operand* const q = shared + turn % 2 * p.staged();
      const Operand* const k = q + p.stage * p.rows();
      const Operand* const v = k + p.stage * p.rows();
      const int n = at.tokens - begin < p.stage ? static_cast<int>(at.tokens - begin) : p.stage;
      if (p.decays) scale(gamma, S);
      for (int i = 0; i < n; ++i) {
        const float down = shuffle(inverse_power, i);
        float values[4], o[4] = {};
        if constexpr (writes) {
          const Quads quad = quads(v + i * p.columns() + columns_at);
          SAMESTATE_UNROLL
          for (int c = 0; c < 4; ++c) values[c] = element(quad, c) * down;
        }
        SAMESTATE_UNROLL
        for (int j = 0; j < quads_held; ++j) {
          const int at_quad = i * p.rows() + row_of(p, j, g);
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
        if (with_z) denominator = warp_sum(add_keys(p, q + i * p.rows(), k + i * p.rows(), z));
        if constexpr (reads) {
          float root = 1.0F;
          if (p.output == RecurrenceOutput::over_root) {
            s = fused(gamma, s, 1.0F);
            root = inverse_root(s);
          }
          for (int mask = 1; mask < p.row_lanes; mask *= 2) {
            SAMESTATE_UNROLL
            for (int c = 0; c < 4; ++c) o[c] += shuffle_xor(o[c], mask);
          }
          if constexpr (warps == 1) {
            const float factor = with_z ? 1.0F / denominator : shuffle(power, i) * root;
            if (lane % p.row_lanes == 0) store_output(p, at, begin + i, columns_at, factor, o);
          } else {
            const int of_warp = warp_index() * p.stage + i;
            if (lane % p.row_lanes == 0) {
              *reinterpret_cast<Vector<float, 4>*>(parts.o + of_warp * p.columns() + columns_at) =
                  narrowed<float>(o);
            }
            if (with_z && lane == 0) parts.denominators[of_warp] = denominator;
            if (thread_index() == i) parts.factors[i] = power * root;
          }
        }
      }
      if (p.decays) scale(shuffle(power, n - 1), S);
      meet();  // the next stage but one takes this memory
      if constexpr (warps > 1) add_parts(p, at, begin, n, parts);
    }
    copies_wait<0>();
    if constexpr (writes) leave(p, at, g, columns_at, s, S, z);
  }

  /// Adds up o for the tokens of a stage, four columns of a token per thread; the parts are overwritten after
  /// the next stage's barrier.
  static SAMESTATE_DEVICE void add_parts(const Parameters& p, const Tile& at, std::int64_t begin, int n,
                                         const Parts& parts) {
    const int across = p.columns() / 4;
    for (int item = thread_index(); item < n * across; item += kThreads) {
      const int i = item / across, columns_at = (item - i * across) * 4;
      float o[4] = {}, denominator = 0.0F;
      SAMESTATE_UNROLL
      for (int warp = 0; warp < warps; ++warp) {
        const int of_warp = warp * p.stage + i;
        const Quad part = load_quad(parts.o + of_warp * p.columns() + columns_at);
        o[0] += part.x, o[1] += part.y, o[2] += part.z, o[3] += part.w;
        if (p.output == RecurrenceOutput::over_sums) denominator += parts.denominators[of_warp];
      }
      const bool with_z = p.output == RecurrenceOutput::over_sums;
      store_output(p, at, begin + i, columns_at, with_z ? 1.0F / denominator : parts.factors[i], o);
    }
  }

  static SAMESTATE_DEVICE void store_output(const Parameters& p, const Tile& at, std::int64_t token,
                                            int columns_at, float factor, float (&o)[4]) {
    SAMESTATE_UNROLL
    for (float& column : o) column *= factor;
    const std::int64_t to = ((at.row + token) * p.heads + at.head) * p.dv + at.column + columns_at;
    if (p.output == RecurrenceOutput::raw) {
      store_columns(p.raw + to, at.width - columns_at, o);
    } else {
      store_columns(p.o + to, at.width - columns_at, o);
    }
  }

  static SAMESTATE_DEVICE Quads quads(const Operand* at) { return *reinterpret_cast<const Quads*>(at); }

  static SAMESTATE_DEVICE void scale(float by, State& S) {
    SAMESTATE_UNROLL
    for (int j = 0; j < quads_held; ++j) {
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) {
        SAMESTATE_UNROLL
        for (int c = 0; c < 4; ++c) S[j][e][c] *= by;
      }
    }
  }

  /// z + k; this lane's part of z . q.
  static SAMESTATE_DEVICE float add_keys(const Parameters& p, const Operand* q, const Operand* k,
                                         float (&z)[kSums][4]) {
    float sum = 0.0F;
    SAMESTATE_UNROLL
    for (int m = 0; m < kSums; ++m) {
      const int quad = thread_index() + kThreads * m;
      if (4 * quad >= p.rows()) break;
      const Quads keys = quads(k + 4 * quad), queries = quads(q + 4 * quad);
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) {
        z[m][e] += element(keys, e);
        sum = fused(element(queries, e), z[m][e], sum);
      }
    }
    return sum;
  }

  /// Loads the rows of the tokens from `begin` of the segment on, as they are stored; the places after dk and
  /// dv stay zero.
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
      for (int i = thread_index(); i < rows * pieces; i += kThreads) {
        const int row = i / pieces, piece = (i - row * pieces) * n;
        copy_async_16(to + row * to_stride + piece, from + std::int64_t{row} * stride + piece);
      }
      return;
    }
    for (int i = thread_index(); i < rows * width; i += kThreads) {
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

  /// The first row of a lane's quad j.
  static SAMESTATE_DEVICE int row_of(const Parameters& p, int j, int g) {
    return 4 * (j * warps * p.row_lanes + g);
  }
  /// Element of a [states, dk, dv] at which row quad j of this lane begins.
  static SAMESTATE_DEVICE std::int64_t state_at(const Parameters& p, const Tile& at, int row,
                                                int columns_at) {
    return (at.of * p.dk + row) * p.dv + at.column + columns_at;
  }

  static SAMESTATE_DEVICE void load_state(const Parameters& p, const Tile& at, int g, int columns_at,
                                          State& S) {
    const bool carried = reads && writes && at.segment > 0;
    const float* const from =
        carried ? p.carried + (at.segment - 1) * p.states() * p.dk * p.dv : (reads ? p.state : nullptr);
    const float factor = carried || from == nullptr ? 1.0F : state_scale(p, at.of);
    const int left = at.width - columns_at;
    // All loads are issued before anything waits for one. Choosing the access at every row had put each load
    // after the wait for the one before.
    const bool vector = p.dv % 4 == 0;
    SAMESTATE_UNROLL
    for (int j = 0; vector && j < quads_held; ++j) {
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int row = row_of(p, j, g) + e;
        const bool there = from != nullptr && row < p.dk && left > 0;
        const float* const x = there ? from + state_at(p, at, row, columns_at) : nullptr;
        const auto quad = load_settled<false>(reinterpret_cast<const Vector<float, 4>*>(x), there);
        SAMESTATE_UNROLL
        for (int c = 0; c < 4; ++c) S[j][e][c] = element(quad, c);
      }
    }
    SAMESTATE_UNROLL
    for (int j = 0; !vector && j < quads_held; ++j) {
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int row = row_of(p, j, g) + e;
        const bool there = from != nullptr && row < p.dk;
        SAMESTATE_UNROLL
        for (int c = 0; c < 4; ++c)
          S[j][e][c] = there && c < left ? from[state_at(p, at, row, columns_at) + c] : 0.0F;
      }
    }
    if (p.output == RecurrenceOutput::over_root) scale(factor, S);
  }

  static SAMESTATE_DEVICE void load_sums(const Parameters& p, const Tile& at, float (&z)[kSums][4]) {
    if constexpr (!reads) return;
    const float* const from = at.segment > 0 ? p.carried_sums + (at.segment - 1) * p.states() * p.dk : p.sums;
    each_sum(p, [&](int row, int m, int e) { z[m][e] = from[at.of * p.dk + row]; });
  }
  /// Calls `visit(row, m, e)` for the rows that this lane has of z.
  template <class Visit>
  static SAMESTATE_DEVICE void each_sum(const Parameters& p, Visit&& visit) {
    SAMESTATE_UNROLL
    for (int m = 0; m < kSums; ++m) {
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int row = 4 * (thread_index() + kThreads * m) + e;
        if (row < p.dk) visit(row, m, e);
      }
    }
  }

  /// Writes the state after the segment, if it is wanted.
  static SAMESTATE_DEVICE void leave(const Parameters& p, const Tile& at, int g, int columns_at, float s,
                                     State& S, float (&z)[kSums][4]) {
    const bool last = at.segment == p.segments - 1;
    if (reads && (!last || p.final_state == nullptr)) return;
    const std::int64_t behind = at.segment * p.states() * p.dk;
    float* const to = reads ? p.final_state : p.carried + behind * p.dv;
    const bool over_root = reads && p.output == RecurrenceOutput::over_root;
    if (over_root && p.tokens > 0) scale(inverse_root(s), S);
    SAMESTATE_UNROLL
    for (int j = 0; j < quads_held; ++j) {
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int row = row_of(p, j, g) + e;
        if (row < p.dk && at.width > columns_at)
          store_columns(to + state_at(p, at, row, columns_at), at.width - columns_at, S[j][e]);
      }
    }
    if (at.column > 0) return;
    if (over_root && thread_index() == 0) p.final_sums[at.of] = s;
    if (p.output != RecurrenceOutput::over_sums) return;
    float* const sums = reads ? p.final_sums : p.carried_sums + behind;
    each_sum(p, [&](int row, int m, int e) { sums[at.of * p.dk + row] = z[m][e]; });
  }
};

}  // namespace samestate::cuda

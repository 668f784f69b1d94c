#pragma once

#include "optimized/cuda/backward/backward_parameters.cuh"

/// The two launches that take one chunk after the other: the states before the chunks, and the cotangents of those after them.
/// A block takes a tile of value columns of one head, whose state is in its shared memory in fp32 and as an operand.
namespace samestate::cuda {

/// The numbers of bf16 that add up to one of fp32 (units/bf16_parts.cuh).
template <class Operand>
inline constexpr int kBackwardParts = std::is_same_v<Operand, float> ? 1 : 3;

/// Shared memory of both; `parts` of the second buffer of values.
template <class Operand, int parts>
struct StateBuffers {
  Operand *keys, *more_keys;  ///< [rows, dk]
  Operand *values, *more;     ///< [rows, tile], [parts, rows, tile]
  Operand* operand;           ///< [dk, tile] the state as an operand
  float* state;               ///< [dk, tile]
  BackwardGates gates;

  static SAMESTATE_HOST_DEVICE int key_stride(int keys) { return row_stride<Operand>(keys); }
  static SAMESTATE_HOST_DEVICE int value_stride(int tile) { return row_stride<Operand>(tile); }
  static SAMESTATE_HOST_DEVICE int state_stride(int tile) { return row_stride<float>(tile); }
  static SAMESTATE_HOST_DEVICE int bytes(int rows, int padded_keys, int tile) {
    return (2 * rows * key_stride(padded_keys) + ((1 + parts) * rows + padded_keys) * value_stride(tile)) *
               static_cast<int>(sizeof(Operand)) +
           padded_keys * state_stride(tile) * 4 + BackwardGates::bytes(rows);
  }
  SAMESTATE_DEVICE StateBuffers(unsigned char* memory, int rows, int padded_keys, int tile)
      : keys(reinterpret_cast<Operand*>(memory)),
        more_keys(keys + rows * key_stride(padded_keys)),
        values(more_keys + rows * key_stride(padded_keys)),
        more(values + rows * value_stride(tile)),
        operand(more + parts * rows * value_stride(tile)),
        state(reinterpret_cast<float*>(operand + padded_keys * value_stride(tile))),
        gates(state + padded_keys * state_stride(tile), rows) {}
};

/// A tile of columns of one state.
template <class Operand>
struct StateTile {
  BackwardSequence sequence;
  std::int64_t head, key_head;
  std::int64_t state;  ///< offset in a tensor of states [N, Hv, dk, dv]
  int column, columns;

  SAMESTATE_DEVICE StateTile(const BackwardParameters<Operand>& p, std::int64_t item)
      : sequence(p.sequences[item / p.tiles() / p.Hv]),
        head(item / p.tiles() % p.Hv),
        key_head(p.key_head(head)),
        column(static_cast<int>(item % p.tiles()) * p.tile),
        columns(p.dv - column < p.tile ? p.dv - column : p.tile) {
    state = item / p.tiles() * p.dk * p.dv + column;
  }
};

/// Both passes share these loads and stores.
template <class Operand, int parts>
struct StatePass {
  using Parameters = BackwardParameters<Operand>;
  using Buffers = StateBuffers<Operand, parts>;

  static int bytes(const Parameters& p) { return Buffers::bytes(p.padded_chunk(), p.padded_keys(), p.tile); }

  static SAMESTATE_DEVICE void load_state(const Parameters& p, const StateTile<Operand>& x, const float* from,
                                          const Buffers& s) {
    for (int i = thread_index(); i < p.padded_keys() * p.tile; i += block_threads()) {
      const int row = i / p.tile, column = i % p.tile;
      const bool exists = from != nullptr && row < p.dk && column < x.columns;
      const float value = exists ? from[x.state + static_cast<std::int64_t>(row) * p.dv + column] : 0.0F;
      s.state[row * Buffers::state_stride(p.tile) + column] = value;
      s.operand[row * Buffers::value_stride(p.tile) + column] = kept_value(p, value);
    }
  }

  /// The state as an operand, of a chunk.
  static SAMESTATE_DEVICE void store_operand(const Parameters& p, const StateTile<Operand>& x,
                                             std::int64_t chunk, Operand* to, const Buffers& s) {
    store_rows(to + (chunk * p.Hv + x.head) * p.dk * p.dv + x.column, p.dv, s.operand,
               Buffers::value_stride(p.tile), p.dk, x.columns, p.values_aligned());
  }

  static SAMESTATE_DEVICE void load_keys(const Parameters& p, const BackwardPlace& at, const Operand* from,
                                         std::int64_t heads, std::int64_t head, Operand* to) {
    load_rows(to, Buffers::key_stride(p.padded_keys()), from + (at.first * heads + head) * p.dk, heads * p.dk,
              at.tokens, p.dk, p.padded_chunk(), p.padded_keys(), p.keys_aligned());
  }

  static SAMESTATE_DEVICE void load_values(const Parameters& p, const StateTile<Operand>& x,
                                           const BackwardPlace& at, const Operand* from, bool exist,
                                           Operand* to) {
    load_rows(to, Buffers::value_stride(p.tile), from + (at.first * p.Hv + x.head) * p.dv + x.column,
              p.Hv * p.dv, exist ? at.tokens : 0, x.columns, p.padded_chunk(), p.tile, p.values_aligned());
  }

  static SAMESTATE_DEVICE void store_values(const Parameters& p, const StateTile<Operand>& x,
                                            const BackwardPlace& at, Operand* to, const Operand* from) {
    store_rows(to + (at.first * p.Hv + x.head) * p.dv + x.column, p.Hv * p.dv, from,
               Buffers::value_stride(p.tile), at.tokens, x.columns, p.values_aligned());
  }
};

/// S before each chunk, and N.
template <class Operand>
struct ForwardStates : StatePass<Operand, 1> {
  using Pass = StatePass<Operand, 1>;
  using typename Pass::Buffers;
  using typename Pass::Parameters;
  static constexpr int kThreads = 256;
  static constexpr int kResidentBlocks = 2;

  static void launch(const Parameters& p, cudaStream_t stream) {
    cuda::launch<ForwardStates>(blocks_of(p.sequence_count * p.Hv * p.tiles(), 1),
                                static_cast<std::size_t>(Pass::bytes(p)), p, stream);
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* memory) {
    const Buffers s(memory, p.padded_chunk(), p.padded_keys(), p.tile);
    for (std::int64_t item = block_index(); item < p.sequence_count * p.Hv * p.tiles();
         item += grid_blocks()) {
      const StateTile<Operand> x(p, item);
      Pass::load_state(p, x, p.initial_state, s);
      block_barrier();
      for (std::int64_t c = 0; c < x.sequence.chunks; ++c)
        step(p, x, place_of(p, x.sequence.first_chunk + c, x.head), s);
    }
  }

 private:
  static SAMESTATE_DEVICE void step(const Parameters& p, const StateTile<Operand>& x, const BackwardPlace& at,
                                    const Buffers& s) {
    const int rows = p.padded_chunk(), keys = p.padded_keys();
    const int key_stride = Buffers::key_stride(keys), value_stride = Buffers::value_stride(p.tile),
              state_stride = Buffers::state_stride(p.tile);
    Pass::load_keys(p, at, p.k, p.Hk, at.key_head, s.keys);
    if (p.delta) Pass::load_keys(p, at, p.w, p.Hv, at.head, s.more_keys);
    Pass::load_values(p, x, at, p.delta ? p.n : p.v, true, s.values);
    load_gates(p, at, s.gates, rows);
    Pass::store_operand(p, x, at.chunk, p.states, s);
    copy_wait();
    block_barrier();
    if (p.delta) {
      multiply<Left::rows, Right::rows, Structure::dense>(
          s.more_keys, key_stride, s.operand, value_stride, rows, p.tile, keys,
          [&](int i, int c, float read) {
            const int cell = i * value_stride + c;
            const float written = widen(s.values[cell]) - read;
            s.values[cell] = kept_value(p, written);
            s.more[cell] = kept_value(p, s.gates.to_end[i] * written);
          });
    } else {
      for (int i = thread_index(); i < rows * p.tile; i += block_threads()) {
        const int cell = i / p.tile * value_stride + i % p.tile;
        s.more[cell] = kept_value(p, s.gates.to_end[i / p.tile] * widen(s.values[cell]));
      }
    }
    block_barrier();
    if (p.delta) Pass::store_values(p, x, at, p.n, s.values);
    const float over_chunk = s.gates.from_start[rows - 1];
    multiply<Left::transposed, Right::rows, Structure::dense>(
        s.keys, key_stride, s.more, value_stride, keys, p.tile, rows, [&](int l, int c, float written) {
          float& state = s.state[l * state_stride + c];
          state = fused(over_chunk, state, written);
          s.operand[l * value_stride + c] = kept_value(p, state);
        });
    block_barrier();
  }
};

/// D after each chunk, dN, and the cotangent of the initial state.
template <class Operand>
struct ReverseStates : StatePass<Operand, kBackwardParts<Operand>> {
  using Pass = StatePass<Operand, kBackwardParts<Operand>>;
  using Part = std::conditional_t<std::is_same_v<Operand, float>, float, Bf16>;
  using typename Pass::Buffers;
  using typename Pass::Parameters;
  static constexpr int kThreads = 256;
  static constexpr int kResidentBlocks = 2;

  static void launch(const Parameters& p, cudaStream_t stream) {
    cuda::launch<ReverseStates>(blocks_of(p.sequence_count * p.Hv * p.tiles(), 1),
                                static_cast<std::size_t>(Pass::bytes(p)), p, stream);
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* memory) {
    const Buffers s(memory, p.padded_chunk(), p.padded_keys(), p.tile);
    for (std::int64_t item = block_index(); item < p.sequence_count * p.Hv * p.tiles();
         item += grid_blocks()) {
      const StateTile<Operand> x(p, item);
      Pass::load_state(p, x, p.d_final_state, s);
      block_barrier();
      for (std::int64_t c = x.sequence.chunks; c-- > 0;)
        step(p, x, place_of(p, x.sequence.first_chunk + c, x.head), s);
      if (p.d_initial_state != nullptr) {
        for (int i = thread_index(); i < p.dk * x.columns; i += block_threads()) {
          const int row = i / x.columns, column = i % x.columns;
          p.d_initial_state[x.state + static_cast<std::int64_t>(row) * p.dv + column] =
              s.state[row * Buffers::state_stride(p.tile) + column];
        }
      }
      block_barrier();
    }
  }

 private:
  static SAMESTATE_DEVICE void step(const Parameters& p, const StateTile<Operand>& x, const BackwardPlace& at,
                                    const Buffers& s) {
    const int rows = p.padded_chunk(), keys = p.padded_keys();
    const int key_stride = Buffers::key_stride(keys), value_stride = Buffers::value_stride(p.tile),
              state_stride = Buffers::state_stride(p.tile);
    Pass::load_keys(p, at, p.k, p.Hk, at.key_head, s.keys);
    Pass::load_keys(p, at, p.q, p.Hk, at.key_head, s.more_keys);
    Pass::load_values(p, x, at, p.d_n, true, s.values);
    Pass::load_values(p, x, at, p.d_o != nullptr ? p.d_o : p.v, p.d_o != nullptr, s.more);
    load_gates(p, at, s.gates, rows);
    Pass::store_operand(p, x, at.chunk, p.d_states, s);
    copy_wait();
    block_barrier();
    decay_cotangents(s, rows, p.tile);
    multiply<Left::rows, Right::rows, Structure::dense>(
        s.keys, key_stride, s.operand, value_stride, rows, p.tile, keys, [&](int i, int c, float carried) {
          Operand& dN = s.values[i * value_stride + c];
          dN = kept_value(p, fused(s.gates.to_end[i], carried, widen(dN)));
        });
    block_barrier();
    if (p.delta) Pass::load_keys(p, at, p.w, p.Hv, at.head, s.keys);
    Pass::store_values(p, x, at, p.d_n, s.values);
    const float over_chunk = s.gates.from_start[rows - 1];
    multiply_parts(s, key_stride, value_stride, keys, p.tile, rows, [&](int l, int c, float read) {
      float& D = s.state[l * state_stride + c];
      D = fused(over_chunk, D, p.scale * read);
      if (!p.delta) s.operand[l * value_stride + c] = kept_value(p, D);
    });
    copy_wait();
    block_barrier();
    if (!p.delta) return;
    multiply<Left::transposed, Right::rows, Structure::dense>(
        s.keys, key_stride, s.values, value_stride, keys, p.tile, rows, [&](int l, int c, float through_W) {
          float& D = s.state[l * state_stride + c];  // of the same thread as above
          D -= through_W;
          s.operand[l * value_stride + c] = kept_value(p, D);
        });
    block_barrier();
  }

  /// e^G dO in parts, for which bf16 has the range: to multiply it instead of q costs less where there are more keys than
  /// columns in a tile.
  static SAMESTATE_DEVICE void decay_cotangents(const Buffers& s, int rows, int columns) {
    const int stride = Buffers::value_stride(columns);
    for (int i = thread_index(); i < rows * columns; i += block_threads()) {
      const int row = i / columns, at = row * stride + i % columns;
      float x = s.gates.from_start[row] * widen(s.more[at]);
      auto* cell = reinterpret_cast<Part*>(s.more) + at;
      SAMESTATE_UNROLL
      for (int part = 0; part < kBackwardParts<Operand>; ++part, cell += rows * stride) {
        *cell = narrow<Part>(x);
        x -= widen(*cell);
      }
    }
  }

  /// each(key, column, sum) of Q^T (e^G dO), whose parts are added in one sum.
  template <class Each>
  static SAMESTATE_DEVICE void multiply_parts(const Buffers& s, int key_stride, int value_stride, int keys,
                                              int columns, int depth, Each&& each) {
    const int across = columns / 16;
    for (int tile = warp_index(); tile < keys / 16 * across; tile += block_warps()) {
      const int row = tile / across * 16, column = tile % across * 16;
      Tile<Operand> product;
      SAMESTATE_UNROLL
      for (int part = kBackwardParts<Operand> - 1; part >= 0; --part) {  // the least first
        product.template multiply<Left::transposed, Right::rows>(
            s.more_keys + row, key_stride,
            reinterpret_cast<const Part*>(s.more) + part * depth * value_stride + column, value_stride,
            depth);
      }
      product.template visit<Left::transposed, Right::rows>(row, column, each);
    }
  }
};

}  // namespace samestate::cuda

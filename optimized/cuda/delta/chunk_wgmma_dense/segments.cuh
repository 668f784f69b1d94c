#pragma once

#include "optimized/cuda/delta/chunk_wgmma_dense/split.cuh"

/// Segments of a sequence side by side, for few heads and many tokens, where one chain of chunks leaves most
/// multiprocessors idle. In the grid of the maps helper blocks prepare the chunks as in the split form, and map blocks carry
/// [I | 0] through the chunks of each segment that another follows, to [M | N] (BOUNDS 5.3). Composition in order
/// (ranks/compose.cuh) makes the state that reaches a segment, and the grid of the outputs runs the chain of the split form
/// from there. Segments are the sequences of `SegmentCall::prefill`. M, N and the states between segments are fp32, and both
/// maps read the same rounded T: M or the states in 16 bit, or another T for M, cost the state one to three digits where
/// keys repeat or beta is small.
namespace samestate::cuda {

inline constexpr int kMapColumns = 2 * kTileColumns;  ///< per map block; each warpgroup has half of them

/// One call.
struct SegmentCall {
  Prefill prefill;           ///< its sequences are the segments in the order of their tokens; no states
  std::int64_t passing = 0;  ///< segments that another follows
  const int* numbers =
      nullptr;  ///< [segments]: by which composition knows them, below `passing` where another follows
  const int* places = nullptr;     ///< [passing]: the segment of that number
  const int* sequences = nullptr;  ///< [segments]: whose tokens they are
  const float* unit = nullptr;     ///< [dk, dk]: the identity
  float* M = nullptr;              ///< [passing, Hv, dk, dk]
  float* N = nullptr;              ///< [passing, Hv, dk, dv]
  const float* reached = nullptr;  ///< [segments by number, Hv, dk, dv]: the states from which they start
  float* final_state = nullptr;    ///< [sequences, Hv, dk, dv]; null if it is not wanted
};

SAMESTATE_HOST_DEVICE inline std::int64_t segment_helpers(const SegmentCall& x) {
  return x.prefill.items() * kHelpers;
}
/// Map blocks of a segment and head: one makes M, the others columns of N.
SAMESTATE_HOST_DEVICE inline int maps_each(const SegmentCall& x) {
  return 1 + x.prefill.value_tiles(kMapColumns);
}
/// The grid of the maps: helpers stand before their readers and wait for no other block.
SAMESTATE_HOST_DEVICE inline std::int64_t map_grid_blocks(const SegmentCall& x) {
  return segment_helpers(x) + x.passing * x.prefill.p.Hv * maps_each(x);
}
SAMESTATE_HOST_DEVICE inline std::int64_t output_grid_blocks(const SegmentCall& x) {
  return x.prefill.items() * x.prefill.value_tiles(kTileColumns);
}

/// The part of the work that a map block does.
struct MapTask {
  std::int64_t number = 0, head = 0;
  bool values = false;  ///< columns of N, else M
  int column = 0;       ///< the first
};
/// Returns the task of block `block` among those after the helpers.
SAMESTATE_HOST_DEVICE inline MapTask map_task(const SegmentCall& x, std::int64_t block) {
  const int kind = static_cast<int>(block % maps_each(x));
  const std::int64_t pair = block / maps_each(x);
  MapTask y;
  y.number = pair / x.prefill.p.Hv;
  y.head = pair % x.prefill.p.Hv;
  y.values = kind > 0;
  y.column = kind > 0 ? (kind - 1) * kMapColumns : 0;
  return y;
}

struct MapShared {
  static constexpr bool kSegments = false;
  alignas(1024) Bf16 k[4][kPanels][kTileBytes / 2];
  alignas(1024) Bf16 v[3][2][kTileBytes / 2];
  Prepared made[4];  ///< without P
  Ring<4> key_ring, made_ring;
  Ring<3> value_ring;
};

struct MapGridShared {
  union {
    MapShared map;
    HelperShared helper;
  };
  int launch;  ///< its number
};
static_assert(sizeof(MapGridShared) <= 227 * 1024,
              "a block of compute capability 9.0 has 227 KiB of shared memory");

struct NoOutput {};

/// 64 columns of M, or of N (`values`), through the chunks of a segment: the chain of pipelined.cuh without O. The unit's
/// work in chunk n: U, keys 0-63 (4 products) | U, keys 64-127 (4) | X of chunk n + 1, keys 0-63 (4) | X, keys 64-127 (4) |
/// V' of chunk n + 1 (4).
template <bool values>
struct MapState : StateParts<MapShared, true, NoOutput> {
  using Base = StateParts<MapShared, true, NoOutput>;
  using Base::s, Base::X;

  SAMESTATE_DEVICE void run(int chunks) {
    if (chunks == 0) return;
    s.key_ring.wait_full(0);
    this->round_state(0);
    this->round_state(1);
    this->multiply_keys(0, 0);
    this->multiply_keys(0, 1);
    new_values(0);
    SAMESTATE_NO_UNROLL
    for (int n = 0; n < chunks - 1; ++n) {
      float U[32];
      const float over = update(n, U);
      s.key_ring.wait_full(n + 1);
      products_wait<1>();
      this->sum_state(0, X, over);
      this->round_state(0);
      this->multiply_keys(n + 1, 0);
      products_wait<1>();
      s.key_ring.release(n);
      this->sum_state(1, U, over);
      this->round_state(1);
      this->multiply_keys(n + 1, 1);
      new_values(n + 1);
    }
    float U[32];
    const float over = update(chunks - 1, U);
    products_wait<0>();
    s.key_ring.release(chunks - 1);
    this->sum_state(0, X, over);
    this->sum_state(1, U, over);
  }

 private:
  /// V' of chunk n in X, where products that make S^T K^T are on their way.
  SAMESTATE_DEVICE void new_values(int n) {
    float bV[32]{};
    std::uint32_t R[4][4];
    s.made_ring.wait_full(n);
    if constexpr (values) {
      s.value_ring.wait_full(n);
      this->weigh_values(n, bV);
      s.value_ring.release(n);
    }
    products_wait<0>();
    this->residual(n, bV, R);
    this->multiply_inverse(n, R);
    products_wait<0>();
  }

  /// Issues U of chunk n, the first half of whose keys takes X's registers; returns the decay over the chunk.
  SAMESTATE_DEVICE float update(int n, float (&U)[32]) {
    std::uint32_t D[4][4];
    this->round_values(n, D);
    const float over = this->made(n).over[0];
    this->multiply_update(n, 0, D, X);
    this->multiply_update(n, 1, D, U);
    s.made_ring.release(n);
    return over;
  }
};

/// T and the gates of the chunks, by one warp: M and N need no P.
SAMESTATE_DEVICE void load_transitions(MapShared& s, const Prefill& c, const Task& x, int launch) {
  constexpr int kGateBytes = Prepared::kBytes - 2 * kTileBytes;
  int there = 0;  // chunks that are published
  SAMESTATE_NO_UNROLL
  for (int n = 0; n < x.chunks; ++n) {
    const std::int64_t slot = x.slot + n * c.p.Hv;
    const int at = s.made_ring.stage(n);
    if (n == there) {
      const int mine = n + lane_index();
      there += await_some(&c.ready[slot + lane_index() * c.p.Hv], mine < x.chunks, launch);
    }
    s.made_ring.wait_empty(n);
    warp_barrier();  // as in load_chunk()
    if (lane_index() == 0) {
      s.made_ring.full[at].expect(kTileBytes + kGateBytes);
      load_bytes(s.made[at].T, c.prepared[slot].T, s.made_ring.full[at], kTileBytes);
      load_bytes(s.made[at].beta, c.prepared[slot].beta, s.made_ring.full[at], kGateBytes);
    }
  }
}

SAMESTATE_DEVICE void load_map_keys(MapShared& s, const Prefill& c, const Maps& maps, const Task& x) {
  SAMESTATE_NO_UNROLL
  for (int n = 0; n < x.chunks; ++n) {
    const int at = s.key_ring.stage(n);
    s.key_ring.wait_empty(n);
    load_chunk(s.key_ring.full[at], s.k[at][0], kPanels, keys_of(c, maps, x), c, x, n);
  }
}
SAMESTATE_DEVICE void load_map_values(MapShared& s, const Prefill& c, const Maps& maps, const Task& x,
                                      int column) {
  SAMESTATE_NO_UNROLL
  for (int n = 0; n < x.chunks; ++n) {
    const int at = s.value_ring.stage(n);
    s.value_ring.wait_empty(n);
    load_chunk(s.value_ring.full[at], s.v[at][0], 2, values_of(c, maps, x, column), c, x, n);
  }
}

/// The chunks that a map block goes through.
SAMESTATE_DEVICE Task map_chunks(const SegmentCall& call, const MapTask& y) {
  Task x;
  assign(x, call.prefill, call.places[y.number] * call.prefill.p.Hv + y.head);
  return x;
}

/// 64 columns of a map from their start to memory.
template <bool values>
SAMESTATE_DEVICE void carry_map(MapShared& s, const SegmentCall& call, const MapTask& y, int group) {
  const Parameters<Bf16>& p = call.prefill.p;
  const int width = values ? p.dv : p.dk;
  const int column = y.column + group * kTileColumns;
  const int chunks = uniform(map_chunks(call, y).chunks);
  MapState<values> state{{s, group, {}}};
  state.load_state(values ? nullptr : call.unit + column, p.dk, width - column, width);
  state.run(chunks);
  float* const to = (values ? call.N : call.M) + (y.number * p.Hv + y.head) * p.dk * width + column;
  state.store_state(to, p.dk, width - column, width);
}

SAMESTATE_DEVICE void map_block(MapShared& s, const SegmentCall& call, const Maps& maps, std::int64_t block,
                                const int& launch_number) {
  if (thread_index() == 0) {
    s.key_ring.init(1, 8);
    s.value_ring.init(1, 8);
    s.made_ring.init(1, 8);
    barriers_ready();
  }
  block_barrier();
  const int launch = launch_number;
  const int role = broadcast(warp_index() / 4);
  const MapTask y = map_task(call, block);
  if (role == 0) {
    fewer_registers<56>();
    const Task x = map_chunks(call, y);
    if (warp_index() == 0) load_map_keys(s, call.prefill, maps, x);
    if (warp_index() == 1) load_transitions(s, call.prefill, x, launch);
    if (warp_index() == 2 && y.values) load_map_values(s, call.prefill, maps, x, y.column);
  } else {
    more_registers<224>();
    if (y.values)
      carry_map<true>(s, call, y, role - 1);
    else
      carry_map<false>(s, call, y, role - 1);
  }
}

/// As begin_launch(), of the grid of the maps.
SAMESTATE_DEVICE int begin_maps(const SegmentCall& call) {
  int* const launches = call.prefill.launches;
  const int before = load_shared_by_all(&launches[1]);
  if (fetch_add(&launches[0], 1) == static_cast<int>(map_grid_blocks(call)) - 1) {
    launches[0] = 0;
    launches[1] = before + 1;
  }
  return before + 1;
}

/// Block `block` of map_grid_blocks(). All helpers are one group of the split form's numbering.
template <bool norm>
SAMESTATE_DEVICE void map_grid_block(MapGridShared& shared, const SegmentCall& call, const Maps& maps,
                                     std::int64_t block) {
  if (thread_index() == 0) shared.launch = begin_maps(call);
  if (block < segment_helpers(call))
    helper_block<true, norm>(shared.helper, call.prefill, maps, block, shared.launch);
  else
    map_block(shared.map, call, maps, block - segment_helpers(call), shared.launch);
}

SAMESTATE_DEVICE Task output_task(const SegmentCall& call, std::int64_t block) {
  const int tiles = call.prefill.value_tiles(kTileColumns);
  Task x;
  x.part = static_cast<int>(block % tiles);
  assign(x, call.prefill, block / tiles);
  return x;
}

/// Block `block` of output_grid_blocks(): 64 value columns of a segment from the state that reached it; the last of a
/// sequence leaves the final state. The grid of the maps has ended.
SAMESTATE_DEVICE void output_grid_block(StateShared& s, const SegmentCall& call, const Maps& maps,
                                        std::int64_t block) {
  const Prefill& c = call.prefill;
  if (thread_index() == 0) {
    s.key_ring.init(1, 4);
    s.query_ring.init(1, 4);
    s.value_ring.init(1, 4);
    s.made_ring.init(1, 4);
    s.o_ring.init(4, 1);
    barriers_ready();
  }
  block_barrier();
  const int role = broadcast(warp_index() / 4);
  if (role == 0) {
    fewer_registers<56>();
    const Task x = output_task(call, block);
    if (warp_index() == 0) load_keys(s, c, maps, x);
    if (warp_index() == 1) load_prepared(s, c, x, load_shared_by_all(&c.launches[1]));
    if (warp_index() == 2) store_output(s, c, maps, x);
    if (warp_index() == 3) load_values_and_queries(s, c, maps, x);
  } else if (role == 1) {
    more_registers<240>();
    const Task x = output_task(call, block);
    const int column = x.part * kTileColumns;
    const int columns = c.p.dv - column;
    const std::int64_t segment = block / c.value_tiles(kTileColumns) / c.p.Hv;
    const int number = call.numbers[segment];
    const auto state_of = [&](std::int64_t n) { return (n * c.p.Hv + x.head) * c.p.dk * c.p.dv + column; };
    PipelinedState<StateShared, true, RingOutput> state{{s, 0, {s}}};
    state.load_state(call.reached + state_of(number), c.p.dk, columns, c.p.dv);
    state.run(uniform(x.chunks));
    if (call.final_state && number >= call.passing)
      state.store_state(call.final_state + state_of(call.sequences[segment]), c.p.dk, columns, c.p.dv);
  } else {
    fewer_registers<24>();
  }
}

}  // namespace samestate::cuda

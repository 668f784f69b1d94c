#pragma once

#include "optimized/cuda/delta/chunk_wgmma_dense/pipelined.cuh"
#include "optimized/cuda/delta/chunk_wgmma_dense/transport.cuh"

/// The split form, for few heads: of a (sequence, head), helper blocks prepare the chunks in turn and publish them in
/// global memory (L2) with a flag, state blocks carry 64 value columns each. Helpers wait for no other block and stand
/// before their readers in the grid.
namespace samestate::cuda {

inline constexpr int kHelpers = 2;  ///< helper blocks a (sequence, head)
inline constexpr int kSplitThreads = 128 * (1 + kMakers);

struct StateShared {
  static constexpr bool kSegments = false;
  alignas(1024) Bf16 k[4][kPanels][kTileBytes / 2];
  alignas(1024) Bf16 q[3][kPanels][kTileBytes / 2];
  alignas(1024) Bf16 v[3][1][kTileBytes / 2];
  Prepared made[4];
  alignas(1024) Bf16 o[1][kTileBytes / 2];
  Ring<4> key_ring, made_ring;
  Ring<3> query_ring, value_ring;
  Ring<1> o_ring;
};

struct HelperShared {
  alignas(1024) Bf16 k[4][kPanels][kTileBytes / 2];
  alignas(1024) Bf16 q[4][kPanels][kTileBytes / 2];
  Prepared made[kMakers];
  alignas(16) float a[kMakers][kChunk * kInverseStride];
  Gates gates[4];
  RawGates raw[4];
  Ring<4> key_ring, query_ring;
  Ring<4> gate_ring;
  Ring<kMakers> made_ring;  ///< chunk m by maker m % kMakers
};
static_assert(
    4 % kMakers == 0,
    "a ring's stage belongs to one maker: tiles land in any order, and a maker that had not seen the phase "
    "before would take its parity for its own");

struct SplitShared {
  union {
    StateShared state;
    HelperShared helper;
  };
  int launch;  ///< its number
};
static_assert(sizeof(SplitShared) <= 227 * 1024,
              "a block of compute capability 9.0 has 227 KiB of shared memory");

SAMESTATE_HOST_DEVICE inline std::int64_t split_blocks(const Prefill& c) {
  return (c.items() + c.group - 1) / c.group * c.group * (kHelpers + c.value_tiles(kTileColumns));
}

SAMESTATE_DEVICE Task split_task(const Prefill& c, std::int64_t block) {
  const int each = kHelpers + c.value_tiles(kTileColumns);
  const std::int64_t group = block / (c.group * each);
  const int rest = static_cast<int>(block % (c.group * each));
  Task x;
  x.helper = rest < kHelpers * c.group;
  const int of_kind = x.helper ? rest : rest - kHelpers * c.group;
  const int parts = x.helper ? kHelpers : each - kHelpers;
  x.part = of_kind % parts;
  assign(x, c, group * c.group + of_kind / parts);
  return x;
}

/// Q, K of a helper's chunks by one warp.
SAMESTATE_DEVICE void load_helper(HelperShared& s, const Prefill& c, const Maps& maps, const Task& x) {
  SAMESTATE_NO_UNROLL
  for (int m = 0, n = x.part; n < x.chunks; ++m, n += kHelpers) {
    const int at = s.key_ring.stage(m);
    s.key_ring.wait_empty(m);
    load_chunk(s.key_ring.full[at], s.k[at][0], kPanels, keys_of(c, maps, x), c, x, n);
    s.query_ring.wait_empty(m);
    load_chunk(s.query_ring.full[at], s.q[at][0], kPanels, queries_of(c, maps, x), c, x, n);
  }
}

/// K of a state block's chunks by one warp, V and Q by another: they leave at different times.
SAMESTATE_DEVICE void load_keys(StateShared& s, const Prefill& c, const Maps& maps, const Task& x) {
  SAMESTATE_NO_UNROLL
  for (int n = 0; n < x.chunks; ++n) {
    const int at = s.key_ring.stage(n);
    s.key_ring.wait_empty(n);
    load_chunk(s.key_ring.full[at], s.k[at][0], kPanels, keys_of(c, maps, x), c, x, n);
  }
}
SAMESTATE_DEVICE void load_values_and_queries(StateShared& s, const Prefill& c, const Maps& maps,
                                              const Task& x) {
  SAMESTATE_NO_UNROLL
  for (int n = 0; n < x.chunks; ++n) {
    const int at = s.query_ring.stage(n);
    const int value_at = s.value_ring.stage(n);
    s.value_ring.wait_empty(n);
    load_chunk(s.value_ring.full[value_at], s.v[value_at][0], 1, values_of(c, maps, x, x.part * kTileColumns),
               c, x, n);
    s.query_ring.wait_empty(n);
    load_chunk(s.query_ring.full[at], s.q[at][0], kPanels, queries_of(c, maps, x), c, x, n);
  }
}

/// One warp loads what the helpers publish: the wait for a flag must not delay any other load.
SAMESTATE_DEVICE void load_prepared(StateShared& s, const Prefill& c, const Task& x, int launch) {
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
      s.made_ring.full[at].expect(Prepared::kBytes);
      load_bytes(&s.made[at], &c.prepared[slot], s.made_ring.full[at], Prepared::kBytes);
    }
  }
}

/// O of every chunk, by one warp.
SAMESTATE_DEVICE void store_output(StateShared& s, const Prefill& c, const Maps& maps, const Task& x) {
  SAMESTATE_NO_UNROLL
  for (int n = 0; n < x.chunks; ++n) {
    s.o_ring.wait_full(n);
    store_chunk(s.o[0], x.part * kTileColumns, c, maps, x, n);
    wait_stores_read();
    s.o_ring.release(n);
  }
}

/// The gates of a helper's chunks by one warp, fetched four chunks ahead.
template <bool delta>
SAMESTATE_DEVICE void gate_warp(HelperShared& s, const Prefill& c, const Task& x) {
  const int lane = lane_index();
  const auto fetch = [&](int m) { fetch_gates<delta>(s.raw[m % 4], c, x, x.part + m * kHelpers); };
  SAMESTATE_NO_UNROLL
  for (int m = 0; m < 4; ++m) fetch(m);
  SAMESTATE_NO_UNROLL
  for (int m = 0, n = x.part; n < x.chunks; ++m, n += kHelpers) {
    copy_wait_but<3>();
    const RawGates& raw = s.raw[m % 4];
    const Pair sums = sum_gates(raw);
    const float beta[2] = {raw[2][lane], raw[3][lane]};
    s.gate_ring.wait_empty(m);
    Gates& y = s.gates[s.gate_ring.stage(m)];
    store_pair(&y.decay[2 * lane], sums.x, sums.y);
    store_pair(&y.beta[2 * lane], beta[0], beta[1]);
    s.gate_ring.full[s.gate_ring.stage(m)].arrive_warp();
    fetch(m + 4);
  }
}

/// Copies what maker `maker` has finished to its slot, and then sets the flag; one thread per maker does it,
/// since a store takes some 3,000 cycles to reach memory.
SAMESTATE_DEVICE void publish_chunks(HelperShared& s, const Prefill& c, const Task& x, int maker,
                                     int launch) {
  SAMESTATE_NO_UNROLL
  for (int m = maker; x.part + m * kHelpers < x.chunks; m += kMakers) {
    const std::int64_t slot = x.slot + (x.part + m * kHelpers) * c.p.Hv;
    s.made_ring.wait_full(m);
    store_bytes(&c.prepared[slot], &s.made[s.made_ring.stage(m)], Prepared::kBytes);
    commit_stores();
    wait_stores_read();
    s.made_ring.empty[s.made_ring.stage(m)].arrive();
    wait_stores();
    publish(&c.ready[slot], launch);
  }
}

/// T and P of a helper's chunks by one warpgroup.
template <bool delta, bool norm>
struct HelperMaker : MakerParts<HelperShared, delta, norm> {
  using Base = MakerParts<HelperShared, delta, norm>;
  using Base::s, Base::group;

  /// The chunk in the rings at m.
  SAMESTATE_DEVICE void prepare(int m) {
    const auto& k = s.k[s.key_ring.stage(m)];
    const auto& q = s.q[s.query_ring.stage(m)];
    Gates& y = s.gates[s.gate_ring.stage(m)];
    s.gate_ring.wait_full(m);
    s.key_ring.wait_full(m);
    s.query_ring.wait_full(m);
    float KK[32];
    float QK[32];
    products_begin();
    if constexpr (delta) this->multiply_rows(KK, k, k);
    this->multiply_rows(QK, q, k);
    products_commit();
    if constexpr (norm) {
      this->norms(k, y.key_norm);
      this->norms(q, y.query_norm);
    }
    products_wait<0>();
    s.key_ring.release(m);
    s.query_ring.release(m);
    if constexpr (norm || delta) this->meet();  // and A of the chunk before has been read
    s.made_ring.wait_empty(m);
    this->template weigh<delta, true>(KK, QK, y);
    this->gates(y);
    s.gate_ring.release(m);
    if constexpr (delta) {
      warp_barrier();  // a warp inverts what it wrote itself
      float below[2][4];
      this->invert();
      this->merge_below(below);
      this->store_T(below);
    }
    fence_async();
    s.made_ring.full[group].arrive_warp();
  }
};

/// O to the warp that stores it.
struct RingOutput {
  StateShared& s;
  SAMESTATE_DEVICE Bf16* tile(int) { return s.o[0]; }
  SAMESTATE_DEVICE void begin(int n) { s.o_ring.wait_empty(n); }
  SAMESTATE_DEVICE void end(int) { s.o_ring.full[0].arrive_warp(); }
};

/// The number of this launch, from 1; the same in all its blocks. The last block that begins counts the launch: until
/// then every block reads the number before. By one thread.
SAMESTATE_DEVICE int begin_launch(const Prefill& c) {
  const int before = load_shared_by_all(&c.launches[1]);
  if (fetch_add(&c.launches[0], 1) == static_cast<int>(split_blocks(c)) - 1) {
    c.launches[0] = 0;
    c.launches[1] = before + 1;
  }
  return before + 1;
}

template <bool delta, bool norm>
SAMESTATE_DEVICE void helper_block(HelperShared& s, const Prefill& c, const Maps& maps, std::int64_t block,
                                   const int& launch_number) {
  if (thread_index() == 0) {
    s.key_ring.init(1, 4);
    s.query_ring.init(1, 4);
    s.gate_ring.init(1, 4);
    s.made_ring.init(4, 1);
    barriers_ready();
  }
  block_barrier();
  const int launch = launch_number;
  const int role = broadcast(warp_index() / 4);
  if (role == 0) {
    fewer_registers<56>();
    const Task x = split_task(c, block);
    if (warp_index() == 0) load_helper(s, c, maps, x);
    if (warp_index() == 1) gate_warp<delta>(s, c, x);
    if (warp_index() >= 2 && lane_index() == 0) publish_chunks(s, c, x, warp_index() - 2, launch);
  } else {
    more_registers<200>();
    const Task x = split_task(c, block);
    HelperMaker<delta, norm> maker{{s, c, role - 1}};
    maker.clear();
    const int mine = uniform((x.chunks - x.part + kHelpers - 1) / kHelpers);
    SAMESTATE_NO_UNROLL
    for (int m = role - 1; m < mine; m += kMakers) maker.prepare(m);
  }
}

template <bool delta>
SAMESTATE_DEVICE void state_block(StateShared& s, const Prefill& c, const Maps& maps, std::int64_t block,
                                  const int& launch_number) {
  if (thread_index() == 0) {
    s.key_ring.init(1, 4);
    s.query_ring.init(1, 4);
    s.value_ring.init(1, 4);
    s.made_ring.init(1, 4);
    s.o_ring.init(4, 1);
    barriers_ready();
  }
  block_barrier();
  const int launch = launch_number;
  const int role = broadcast(warp_index() / 4);
  if (role == 0) {
    fewer_registers<56>();
    const Task x = split_task(c, block);
    if (warp_index() == 0) load_keys(s, c, maps, x);
    if (warp_index() == 1) load_prepared(s, c, x, launch);
    if (warp_index() == 2) store_output(s, c, maps, x);
    if (warp_index() == 3) load_values_and_queries(s, c, maps, x);
  } else if (role == 1) {
    more_registers<240>();
    const Task x = split_task(c, block);
    const int column = x.part * kTileColumns;
    const int columns = c.p.dv - column;
    PipelinedState<StateShared, delta, RingOutput> state{{s, 0, {s}}};
    state.load_state(c.p.initial_state ? c.p.initial_state + x.state + column : nullptr, c.p.dk, columns,
                     c.p.dv);
    state.run(uniform(x.chunks));
    if (c.p.final_state) state.store_state(c.p.final_state + x.state + column, c.p.dk, columns, c.p.dv);
  } else {
    fewer_registers<24>();
  }
}

/// Block `block` of split_blocks().
template <bool delta, bool norm>
SAMESTATE_DEVICE void split_block(SplitShared& shared, const Prefill& c, const Maps& maps,
                                  std::int64_t block) {
  if (thread_index() == 0) shared.launch = begin_launch(c);
  // Every role asks for its task itself: what it does not need would take registers until its share is set.
  const Task x = split_task(c, block);
  if (!x.exists) return;
  if (x.helper)
    helper_block<delta, norm>(shared.helper, c, maps, block, shared.launch);
  else
    state_block<delta>(shared.state, c, maps, block, shared.launch);
}

}  // namespace samestate::cuda

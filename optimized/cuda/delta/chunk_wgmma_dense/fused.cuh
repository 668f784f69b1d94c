#pragma once

#include "optimized/cuda/delta/chunk_wgmma_dense/pipelined.cuh"
#include "optimized/cuda/delta/chunk_wgmma_dense/plain.cuh"
#include "optimized/cuda/delta/chunk_wgmma_dense/transport.cuh"

/// The fused form, for many heads: one block a (sequence, head) and `value_groups` times 64 value columns. Two
/// warpgroups fetch and prepare the chunks in turn, each of the others carries 64 columns of S and stores its own part of
/// O. No warp only fetches: a fifth warpgroup would leave every thread too few registers.
namespace samestate::cuda {

template <int value_groups>
inline constexpr int kFusedThreads = 128 * (kMakers + value_groups);

template <int value_groups, bool delta>
struct FusedShared {
  /// Stages of Q and V. Where memory sets the pace, blocks that run ahead lose the K and Q that they share in L2.
  static constexpr int kStages = value_groups == 1 ? 4 : 2;
  /// Few heads leave multiprocessors idle: a sequence's chunks are shared out among blocks.
  static constexpr bool kSegments = value_groups == 1 && !delta;

  alignas(1024) Bf16 k[4][kPanels][kTileBytes / 2];
  alignas(1024) Bf16 q[kStages][kPanels][kTileBytes / 2];
  alignas(1024) Bf16 v[kStages][value_groups][kTileBytes / 2];
  Prepared made[kMakers];
  /// Alone with its chain, a state warpgroup leaves O of every chunk to the maker that prepared it; one that shares the
  /// unit has time for it, and there would be no memory for another tile each.
  static constexpr bool kMakersStore = value_groups == 1;
  alignas(1024) Bf16 o[kMakersStore ? kMakers : value_groups][kTileBytes / 2];
  alignas(16) float a[kMakers][delta ? kChunk * kInverseStride : 4];
  Gates gates[kMakers][2];  ///< in turn: a warp may still read the chunk before
  RawGates raw[kMakers];
  Ring<4> key_ring;
  Ring<kStages> query_ring, value_ring;
  Ring<kMakers> made_ring, o_ring;
  Task task;

  SAMESTATE_DEVICE int first_column(int group) const {
    return (task.part * value_groups + group) * kTileColumns;
  }
};

template <int value_groups>
SAMESTATE_HOST_DEVICE int fused_segments(const Prefill& c) {
  return value_groups == 1 ? c.segments : 1;
}

template <int value_groups>
SAMESTATE_HOST_DEVICE std::int64_t fused_blocks(const Prefill& c) {
  return c.items() * c.value_tiles(value_groups * kTileColumns) * fused_segments<value_groups>(c);
}

template <int value_groups>
SAMESTATE_DEVICE Task fused_task(const Prefill& c, std::int64_t block) {
  const int tiles = c.value_tiles(value_groups * kTileColumns);
  const int segments = fused_segments<value_groups>(c);
  Task x;
  x.part = static_cast<int>(block % tiles);
  assign(x, c, block / tiles / segments);
  if (segments > 1) cut(x, c, static_cast<int>(block / tiles % segments));
  return x;
}

/// Prepares every second chunk, from `group` on. Every ring's stage belongs to one maker.
template <int value_groups, bool delta, bool norm>
struct FusedMaker : MakerParts<FusedShared<value_groups, delta>, delta, norm> {
  using Shared = FusedShared<value_groups, delta>;
  using Base = MakerParts<Shared, delta, norm>;
  using Base::s, Base::c, Base::group, Base::at;
  const Maps& maps;

  SAMESTATE_DEVICE void run() {
    const int chunks = uniform(s.task.chunks);
    int first = 0;
    if constexpr (Shared::kSegments) first = uniform(s.task.first);
    fetch_keys(group);
    if constexpr (kEarly) {
      fetch_queries(first + group);
      fetch_values(group);
    }
    this->clear();
    if constexpr (Shared::kSegments) {
      SAMESTATE_NO_UNROLL
      for (int n = group; n < first; n += kMakers) prepare_gates(n);
    }
    SAMESTATE_NO_UNROLL
    for (int n = first + group; n < chunks; n += kMakers) prepare(n);
    if (Shared::kMakersStore && first + group < chunks) {
      const int last = (chunks - 1 - group) / kMakers * kMakers + group;
      store_output(last);
      output_stored(last);
    }
  }

 private:
  /// Which warp fetches and stores. All four meet at the products. If K, Q and V are fetched while P is
  /// weighed, the warps with the fewest blocks of P do it (warp w has w + 1 blocks).
  static constexpr bool kEarly = Shared::kStages > kMakers;  ///< Q and V, as K, a chunk ahead
  static constexpr int kKeyWarp = 0, kQueryWarp = kEarly ? 0 : 1, kValueWarp = kEarly ? 1 : 2;
  static constexpr int kGateWarp = kEarly ? 1 : 3, kStoreWarp = kEarly ? 2 : 0;

  SAMESTATE_DEVICE void fetch_keys(int n) {
    if (at.warp == kKeyWarp)
      fetch(s.key_ring, n, s.k[s.key_ring.stage(n)][0], kPanels, keys_of(c, maps, s.task));
    if (at.warp == kGateWarp) fetch_gates<delta>(s.raw[group], c, s.task, n);
  }
  SAMESTATE_DEVICE void fetch_queries(int n) {
    if (at.warp == kQueryWarp) {
      const int m = of_output(n);
      fetch(s.query_ring, m, n, s.q[s.query_ring.stage(m)][0], kPanels, queries_of(c, maps, s.task));
    }
  }
  SAMESTATE_DEVICE void fetch_values(int n) {
    if (at.warp == kValueWarp) {
      fetch(s.value_ring, n, s.v[s.value_ring.stage(n)][0], value_groups,
            values_of(c, maps, s.task, s.first_column(0)));
    }
  }
  template <int stages>
  SAMESTATE_DEVICE void fetch(Ring<stages>& ring, int n, Bf16* tiles, int panels, const Source& from) {
    fetch(ring, n, n, tiles, panels, from);
  }
  /// Chunk n, which is the ring's m-th.
  template <int stages>
  SAMESTATE_DEVICE void fetch(Ring<stages>& ring, int m, int n, Bf16* tiles, int panels, const Source& from) {
    if (n >= s.task.chunks) return;
    ring.wait_empty(m);
    load_chunk(ring.full[ring.stage(m)], tiles, panels, from, c, s.task, n);
  }
  /// Returns the index of chunk n in the rings of the data that only O needs.
  SAMESTATE_DEVICE int of_output(int n) const {
    if constexpr (Shared::kSegments)
      return n - s.task.first;
    else
      return n;
  }

  /// O of chunk n, where there is one, by a warp; and its tile to the state warpgroup again.
  SAMESTATE_DEVICE void store_output(int n) {
    const int m = of_output(n);
    if (at.warp != kStoreWarp || m < 0) return;
    s.o_ring.wait_full(m);
    store_chunk(s.o[s.o_ring.stage(m)], s.first_column(0), c, maps, s.task, n);
  }
  SAMESTATE_DEVICE void output_stored(int n) {
    const int m = of_output(n);
    if (at.warp != kStoreWarp || m < 0) return;
    wait_stores_read();
    s.o_ring.release(m);
  }

  /// Prepares the gates of a chunk that only S needs.
  SAMESTATE_DEVICE void prepare_gates(int n) {
    Gates& y = s.gates[group][n / kMakers % 2];
    if (at.warp == kGateWarp) take_gates(y);
    s.key_ring.wait_full(n);
    if constexpr (norm) this->norms(s.k[s.key_ring.stage(n)], y.key_norm);
    s.key_ring.release(n);
    this->meet();
    s.made_ring.wait_empty(n);
    fetch_keys(n + kMakers);
    fetch_values(n + kMakers);
    this->gates(y, kChunk);  // beside the warps that fetch
    fence_async();
    s.made_ring.full[group].arrive_warp();
  }

  SAMESTATE_DEVICE void prepare(int n) {
    const int m = of_output(n);
    const auto& k = s.k[s.key_ring.stage(n)];
    const auto& q = s.q[s.query_ring.stage(m)];
    Gates& y = s.gates[group][n / kMakers % 2];
    float product[32];
    if constexpr (!kEarly) {
      fetch_queries(n);
      if constexpr (!delta) fetch_values(n);
    }
    if (at.warp == kGateWarp) take_gates(y);
    s.key_ring.wait_full(n);
    if constexpr (delta) {
      products_begin();
      this->multiply_rows(product, k, k);
      products_commit();
      if constexpr (norm) this->norms(k, y.key_norm);
      products_wait<0>();
      this->meet();
      this->template weigh<true, false>(product, product, y);
      warp_barrier();  // a warp inverts what it wrote itself
      this->invert();
      fetch_values(n);
    }
    s.query_ring.wait_full(m);
    products_begin();
    this->multiply_rows(product, q, k);
    products_commit();
    if constexpr (norm && !delta) this->norms(k, y.key_norm);
    if constexpr (norm) this->norms(q, y.query_norm);
    if constexpr (delta) {
      float below[2][4];
      this->merge_below(below);
      s.made_ring.wait_empty(n);
      this->store_T(below);
    }
    products_wait<0>();
    s.key_ring.release(n);
    s.query_ring.release(m);
    if constexpr (norm || !delta) this->meet();
    if constexpr (!delta) s.made_ring.wait_empty(n);
    fetch_keys(n + kMakers);
    if constexpr (kEarly) {
      fetch_queries(n + kMakers);
      fetch_values(n + kMakers);
    }
    if constexpr (Shared::kMakersStore) store_output(n - kMakers);
    this->template weigh<false, true>(product, product, y);
    this->gates(y);
    fence_async();
    s.made_ring.full[group].arrive_warp();
    if constexpr (Shared::kMakersStore) output_stored(n - kMakers);
  }

  SAMESTATE_DEVICE void take_gates(Gates& y) {
    copy_wait_but<0>();
    const RawGates& raw = s.raw[group];
    const Pair sums = sum_gates(raw);
    store_pair(&y.decay[2 * at.lane], sums.x, sums.y);
    store_pair(&y.beta[2 * at.lane], raw[2][at.lane], raw[3][at.lane]);
  }
};

/// O of a state warpgroup, stored by itself.
template <class Shared>
struct OwnOutput {
  Shared& s;
  const Prefill& c;
  const Maps& maps;
  int group;

  SAMESTATE_DEVICE Bf16* tile(int) { return s.o[group]; }
  SAMESTATE_DEVICE void begin(int) {
    wait_stores_read();  // of the thread that stored
    meet();
  }
  SAMESTATE_DEVICE void end(int n) {
    meet();
    if (recomputed(thread_index()) % 128 < 32)
      store_chunk(s.o[group], s.first_column(group), c, maps, s.task, n);
  }

 private:
  SAMESTATE_DEVICE void meet() const { named_barrier(kMakers + 1 + group, 128); }
};

/// O to the maker that stores it.
template <class Shared>
struct MakersOutput {
  Shared& s;

  SAMESTATE_DEVICE Bf16* tile(int n) { return s.o[s.o_ring.stage(n)]; }
  SAMESTATE_DEVICE void begin(int n) { s.o_ring.wait_empty(n); }
  SAMESTATE_DEVICE void end(int n) { s.o_ring.full[s.o_ring.stage(n)].arrive_warp(); }
};

/// Registers a thread, of 168 at the start in 384 threads and 128 in 512.
template <int value_groups>
struct FusedRegisters {
  static constexpr int kMaker = value_groups == 1 ? 128 : 72;
  static constexpr int kState = value_groups == 1 ? 240 : 184;
};

/// Block `block` of fused_blocks().
template <int value_groups, bool delta, bool norm>
SAMESTATE_DEVICE void fused_block(FusedShared<value_groups, delta>& s, const Prefill& c, const Maps& maps,
                                  std::int64_t block) {
  using Shared = FusedShared<value_groups, delta>;
  static_assert(sizeof(Shared) <= 227 * 1024,
                "a block of compute capability 9.0 has 227 KiB of shared memory");
  constexpr int kReaders = 4 * value_groups;  // warps
  if (thread_index() == 0) {
    s.task = fused_task<value_groups>(c, block);
    s.key_ring.init(1, 4 + kReaders);
    s.query_ring.init(1, 4 + kReaders);
    s.value_ring.init(1, kReaders);
    s.made_ring.init(4, kReaders);
    s.o_ring.init(4, 1);
    barriers_ready();
  }
  block_barrier();
  const int role = broadcast(warp_index() / 4);
  if (role < kMakers) {
    fewer_registers<FusedRegisters<value_groups>::kMaker>();
    FusedMaker<value_groups, delta, norm>{{s, c, role}, maps}.run();
  } else {
    more_registers<FusedRegisters<value_groups>::kState>();
    const int group = role - kMakers;
    const int column = s.first_column(group);
    const int columns = c.p.dv - column;
    const auto work = [&](auto state) {
      state.load_state(c.p.initial_state ? c.p.initial_state + s.task.state + column : nullptr, c.p.dk,
                       columns, c.p.dv);
      state.run(uniform(s.task.chunks));
      wait_stores_read();
      if (c.p.final_state && s.task.last)
        state.store_state(c.p.final_state + s.task.state + column, c.p.dk, columns, c.p.dv);
    };
    if constexpr (Shared::kMakersStore)
      work(PipelinedState<Shared, delta, MakersOutput<Shared>>{{s, group, {s}, s.task.first}});
    else
      work(PlainState<Shared, delta, OwnOutput<Shared>>{{s, group, {s, c, maps, group}}});
  }
}

}  // namespace samestate::cuda

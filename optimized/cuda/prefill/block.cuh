#pragma once

#include "optimized/cuda/prefill/state.cuh"
#include "optimized/cuda/prefill/transport.cuh"

namespace samestate::cuda {

/// The number of this launch, from 1; the same in all its blocks. The last block that begins counts the launch: until
/// then every block reads the number before. By one thread.
SAMESTATE_DEVICE int begin_launch(const Prefill& c) {
  const int before = load_shared_by_all(&c.launches[1]);
  if (fetch_add(&c.launches[0], 1) == static_cast<int>(c.blocks()) - 1) {
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
    const Task x = task_of(c, block);
    if (warp_index() == 0) load_helper(s, c, maps, x);
    if (warp_index() == 1) gate_warp<delta>(s, c, x);
    if (warp_index() >= 2 && lane_index() == 0) publish_chunks(s, c, x, warp_index() - 2, launch);
  } else {
    more_registers<200>();
    const Task x = task_of(c, block);
    Maker<delta, norm> maker{s, c, role - 1};
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
    s.o_ring[0].init(4, 1);
    barriers_ready();
  }
  block_barrier();
  const int launch = launch_number;
  const int role = broadcast(warp_index() / 4);
  if (role == 0) {
    fewer_registers<56>();
    const Task x = task_of(c, block);
    if (warp_index() == 0) load_state_block(s, c, maps, x);
    if (warp_index() == 1 && lane_index() == 0) load_prepared(s, c, x, launch);
    if (warp_index() == 2) store_output(s, c, maps, x, 0, x.part * kTileColumns);
  } else if (role == 1) {
    more_registers<240>();
    const Task x = task_of(c, block);
    const int column = x.part * kTileColumns;
    const int columns = c.p.dv - column;
    PipelinedState<StateShared, delta> state{{s, 0}};
    state.load_state(c.p.initial_state ? c.p.initial_state + x.state + column : nullptr, c.p.dk, columns,
                     c.p.dv);
    state.run(uniform(x.chunks));
    if (c.p.final_state) state.store_state(c.p.final_state + x.state + column, c.p.dk, columns, c.p.dv);
  } else {
    fewer_registers<24>();
  }
}

/// Block `block` of Prefill::blocks(); `launch_number` is a word of shared memory.
template <bool delta, bool norm>
SAMESTATE_DEVICE void prefill_block(Shared& shared, int& launch_number, const Prefill& c, const Maps& maps,
                                    std::int64_t block) {
  if (thread_index() == 0) launch_number = begin_launch(c);
  // Every role asks for its task itself: what it does not need would take registers until its share is set.
  const Task x = task_of(c, block);
  if (!x.exists) return;
  if (x.helper)
    helper_block<delta, norm>(shared.helper, c, maps, block, launch_number);
  else
    state_block<delta>(shared.state, c, maps, block, launch_number);
}

}  // namespace samestate::cuda

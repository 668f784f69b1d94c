#pragma once

#include <algorithm>
#include <cstdint>

#include "optimized/cuda/operators/recurrence_tiles.cuh"

/// Sizes and launches of a recurrence: segments that leave their own states, these summed up, segments that read.
namespace samestate::cuda {

/// The sizes of the launches, behind everything else of `p`.
template <class Operand>
void plan_recurrence(RecurrenceParameters<Operand>& p) {
  while (p.rows() < p.dk) p.row_lanes *= 2;
  // Some 16 KB for both stages, that an SM holds a dozen warps.
  p.stage = std::clamp(4096 / static_cast<int>(sizeof(Operand)) / p.rows(), 4, 16);
  p.tiled = sizeof(Operand) == 2 && p.tokens >= kRecurrenceTile && p.dk <= kWidestTile;
  const Segments of = p.tiled ? plan_segments(p.states() * ceiling(p.dv, kRecurrenceColumns),
                                              resident_of_width(p.dk), p.tokens, kRecurrenceTile)
                              : plan_segments(p.states() * p.tiles(), 12, p.tokens, 1);
  p.segment = of.tokens;
  p.segments = of.count;
}

/// Memory of `tensors` for the states of so many segments, if there are any.
template <class Operand, class Tensors>
void make_carried(RecurrenceParameters<Operand>& p, Tensors& tensors, std::int64_t segments) {
  if (segments == 0) return;
  const std::int64_t rows = segments * p.states() * p.dk;
  p.carried = tensors.template scratch<float>(rows * p.dv);
  if (p.output == RecurrenceOutput::over_sums) p.carried_sums = tensors.template scratch<float>(rows);
}

/// All segments at once.
template <bool writes, bool reads, class Operand>
void launch_segments(const RecurrenceParameters<Operand>& p, cudaStream_t stream) {
  if constexpr (sizeof(Operand) == 2) {
    if (p.tiled)
      return tile_width(p.dk, [&](auto width) { RecurrenceTiles<width, writes, reads>::launch(p, stream); });
  }
  RecurrenceSegments<Operand, writes, reads>::launch(p, stream);
}

template <class Operand>
void launch_recurrence(const RecurrenceParameters<Operand>& p, cudaStream_t stream) {
  if (p.whole || p.segments > 1) {
    launch_segments<true, false>(p, stream);
    EachThread<CarryStates<Operand>>::launch(p, stream);
  }
  if (!p.whole) return launch_segments<true, true>(p, stream);
  RecurrenceParameters<Operand> reading = p;
  reading.state = p.final_state;
  launch_segments<false, true>(reading, stream);
}

}  // namespace samestate::cuda

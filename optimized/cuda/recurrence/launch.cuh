#pragma once

#include <algorithm>
#include <cstdint>

#include "optimized/cuda/recurrence/chunk_mma.cuh"
#include "optimized/cuda/recurrence/token_fma.cuh"

/// Sizes and launches of a recurrence: segments that leave their own states, these summed up, segments that read.
namespace samestate::cuda {

inline constexpr int kSpreadWarps = 8;  ///< per block that takes few tokens through a state

/// Few tokens, whose work is the way of the state there and back: rows of a tile go round the warps of a block, an access is 128 bytes
/// of a row or more and a lane's loads are few. Where they give too few blocks tiles are half as wide.
template <class Operand>
void spread_rows(RecurrenceParameters<Operand>& p) {
  constexpr std::int64_t kBlocks =
      264;  // two a multiprocessor of an H100, whatever the device: the same bits
  p.warps = kSpreadWarps;
  for (p.quads = 2; p.quads > 0; --p.quads) {
    for (p.row_lanes = 1; p.rows() < p.dk;) p.row_lanes *= 2;
    if (p.quads == 1 || (p.dk > 64 && p.states() * p.tiles() >= kBlocks)) break;
  }
  p.stage = std::clamp(2048 / p.rows(), 4, 8);
}

/// Sets the sizes of the launches, after everything else of `p`.
template <class Operand>
void plan_recurrence(RecurrenceParameters<Operand>& p) {
  while (p.rows() < p.dk) p.row_lanes *= 2;
  // Some 16 KB for both stages, that an SM holds a dozen warps.
  p.stage = std::clamp(4096 / static_cast<int>(sizeof(Operand)) / p.rows(), 4, 16);
  p.tiled = sizeof(Operand) == 2 && p.tokens >= kStateTokens && p.dk <= kWidestTile;
  const Segments of = p.tiled ? plan_segments(p.states() * ceiling(p.dv, kRecurrenceColumns),
                                              resident_of_width(p.dk), p.tokens, kStateTokens)
                              : plan_segments(p.states() * p.tiles(), 12, p.tokens, 1);
  p.segment = of.tokens;
  p.segments = of.count;
  constexpr std::int64_t kFewTokens = 64;
  constexpr int kFewRows = 32;
  if (!p.tiled && !p.whole && p.tokens < kFewTokens && p.dk > kFewRows) spread_rows(p);
}

/// Allocates memory in `tensors` for the states of the segments, if there are any.
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
  if constexpr (writes && reads) {
    if (p.warps > 1) {
      if (p.quads == 1) return RecurrenceSegments<Operand, true, true, kSpreadWarps, 1>::launch(p, stream);
      return RecurrenceSegments<Operand, true, true, kSpreadWarps, 2>::launch(p, stream);
    }
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

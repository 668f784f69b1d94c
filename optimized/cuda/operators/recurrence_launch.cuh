#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "optimized/cuda/operators/recurrence_tiles.cuh"

/// Sizes and launches of a recurrence: segments that leave their own states, these summed up, segments that read.
namespace samestate::cuda {

inline constexpr int kWidestRecurrence = 256;  ///< keys that the tiles take

/// `make(width)` of the narrowest compiled width that holds dk, an integral constant.
template <class Make>
decltype(auto) tile_width(int dk, Make&& make) {
  if (dk <= 64) return make(std::integral_constant<int, 64>{});
  if (dk <= 128) return make(std::integral_constant<int, 128>{});
  return make(std::integral_constant<int, kWidestRecurrence>{});
}

[[nodiscard]] inline std::int64_t ceiling(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

/// The sizes of the launches, behind everything else of `p`. Segments are those that fill an H100 whatever the device: where they
/// begin decides the order of sums, and every device is to give the same bits.
template <class Operand>
void plan_recurrence(RecurrenceParameters<Operand>& p) {
  while (p.rows() < p.dk) p.row_lanes *= 2;
  // Some 16 KB for both stages, that an SM holds a dozen warps.
  p.stage = std::clamp(4096 / static_cast<int>(sizeof(Operand)) / p.rows(), 4, 16);
  p.tiled = sizeof(Operand) == 2 && p.tokens >= kRecurrenceTile && p.dk <= kWidestRecurrence;
  constexpr std::int64_t kMultiprocessors = 132, kShortest = 64;
  const std::int64_t enough = kMultiprocessors * (!p.tiled ? 12 : tile_width(p.dk, [](auto width) {
                                return std::int64_t{RecurrenceTiles<width, true, true>::kResidentBlocks};
                              }));
  const std::int64_t units = p.states() * (p.tiled ? ceiling(p.dv, kRecurrenceColumns) : p.tiles());
  std::int64_t segments = units > 0 ? std::min(enough / units, p.tokens / kShortest) : 1;
  segments = std::max<std::int64_t>(segments, 1);
  p.segment = std::max<std::int64_t>(ceiling(p.tokens, segments), 1);
  if (p.tiled) p.segment = ceiling(p.segment, kRecurrenceTile) * kRecurrenceTile;
  p.segments = std::max<std::int64_t>((p.tokens + p.segment - 1) / p.segment, 1);
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

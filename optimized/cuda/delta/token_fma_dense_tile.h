#pragma once

#include <cstddef>
#include <iterator>

/// The way a decoding block is cut: shared by the kernel, its launch and the table that chooses (token_dense_table.h).
namespace samestate::cuda {

inline constexpr int kWarpKeys = 32;  ///< rows of the state that one warp holds
inline constexpr int kMostWarps = 8;  ///< dk up to 256

/// When the next grid may start, under a programmatic launch.
enum class Trigger { end, loaded, start };

struct DecodeTile {
  int columns;      ///< of the state that a block handles
  int state_bytes;  ///< of an element: 4 or 2
  int width;        ///< adjacent columns of a lane: 16 bytes of the state, or 1 where rows are not aligned
  bool single;      ///< one token a sequence, not packed
  bool once;        ///< the state passes the caches by (no allocation, first to leave)
  bool early;       ///< asks for the state before the grids before have ended, where nothing writes it
  Trigger trigger;
  int blocks;  ///< of 256 threads that the registers of a multiprocessor must suffice for
};

/// The rows of token_dense_table.h, in its order.
inline constexpr DecodeTile kDecodeTiles[] = {
    // fp32 state
    {16, 4, 4, true, true, true, Trigger::start, 2},
    {64, 4, 4, true, false, true, Trigger::start, 1},
    {64, 4, 4, true, true, false, Trigger::end, 2},
    {64, 4, 4, true, false, false, Trigger::loaded, 1},
    {32, 4, 4, false, false, false, Trigger::end, 2},
    {64, 4, 4, false, false, false, Trigger::end, 1},
    {32, 4, 1, false, false, false, Trigger::end, 1},
    // bf16 state
    {128, 2, 8, true, true, true, Trigger::start, 1},
    {64, 2, 8, true, true, true, Trigger::loaded, 2},
    {64, 2, 8, false, false, false, Trigger::end, 1},
    {32, 2, 1, false, false, false, Trigger::end, 1},
};
inline constexpr std::size_t kDecodeTileCount = std::size(kDecodeTiles);

/// fp32 words of shared memory for the sums of one warp: S^T q and, with the delta rule, S^T k of each column;
/// k . q, k . k, q . q and one that is not used.
constexpr int decode_warp_words(DecodeTile tile, bool delta) { return tile.columns * (delta ? 2 : 1) + 4; }

/// Of a block of `warps`: two halves, tokens in turn.
constexpr int decode_words(DecodeTile tile, bool delta, int warps) {
  return 2 * warps * decode_warp_words(tile, delta);
}

}  // namespace samestate::cuda

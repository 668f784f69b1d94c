#pragma once

#include <cstddef>
#include <iterator>

/// The shape of a decoding block, shared by the kernel, its launch and the table that chooses it
/// (token_dense_table.h).
namespace samestate::cuda {

inline constexpr int kWarpKeys = 32;  ///< rows of the state that one warp holds
inline constexpr int kMostWarps = 8;  ///< dk up to 256

/// When the next grid may start under a programmatic launch.
enum class Trigger { end, loaded, start };

struct DecodeTile {
  int columns;      ///< columns of the state that a block handles
  int state_bytes;  ///< bytes of an element: 4 or 2
  int width;        ///< adjacent columns per lane: 16 bytes of the state, or 1 if rows are not aligned
  bool single;      ///< one token per sequence, not packed
  bool once;        ///< the state bypasses the caches (no allocation, first to be evicted)
  bool early;       ///< requests the state before the preceding grids have ended, if nothing writes it
  Trigger trigger;
  int blocks;  ///< blocks of 256 threads that must fit into the registers of a multiprocessor
};

/// The tiles of token_dense_table.h, in its order.
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

/// fp32 words of shared memory for the sums of one warp: S^T q and, with the delta rule, S^T k for each
/// column; k . q, k . k, q . q and one unused word.
constexpr int decode_warp_words(DecodeTile tile, bool delta) { return tile.columns * (delta ? 2 : 1) + 4; }

/// The words of a block of `warps`: two halves, used by tokens in turn.
constexpr int decode_words(DecodeTile tile, bool delta, int warps) {
  return 2 * warps * decode_warp_words(tile, delta);
}

}  // namespace samestate::cuda

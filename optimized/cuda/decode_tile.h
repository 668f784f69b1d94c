#pragma once

/// How a decoding block is cut, shared by the kernel, its launch and the table that chooses.
namespace samestate::cuda {

inline constexpr int kWarpKeys = 32;  ///< rows of the state that one warp holds
inline constexpr int kMostWarps = 8;  ///< dk up to 256

/// When the next grid may start, under a programmatic launch.
enum class Trigger { end, loaded, start };

struct DecodeTile {
  int columns;  ///< of the state that a block handles
  int width;    ///< adjacent columns of a lane: 16 bytes of the state, or 1 where rows are not aligned
  bool once;    ///< the state passes the caches by (no allocation, first to leave)
  bool single = true;  ///< one token a sequence, not packed
  Trigger trigger = Trigger::end;
};

/// fp32 words of shared memory for the sums of one warp: S^T q and, with the delta rule, S^T k of each column;
/// k . q, k . k, q . q and one that is not used.
constexpr int decode_warp_words(DecodeTile tile, bool delta) { return tile.columns * (delta ? 2 : 1) + 4; }

/// Of a block of `warps`: two halves, tokens in turn.
constexpr int decode_words(DecodeTile tile, bool delta, int warps) {
  return 2 * warps * decode_warp_words(tile, delta);
}

}  // namespace samestate::cuda

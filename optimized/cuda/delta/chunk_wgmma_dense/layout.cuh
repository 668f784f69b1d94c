#pragma once

#include <cstdint>

#include "optimized/cuda/delta/dense_parameters.cuh"
#include "optimized/cuda/units/wgmma.cuh"

/// Chunked prefill on tensor cores, contract bf16_fused, state first (EQUATIONS 5.5):
///
///   A = strict_lower(beta K K^T o E)   T = (I + A)^-1   P = scale Q K^T o E
///   R = beta V - beta e^G (K S)        V' = T R         (without the delta rule V' = V)
///   O = scale e^G (Q S) + P V'         S <- e^{G_C} S + K^T (e^{G_C - G} V')
///
/// One kind of warpgroup prepares what depends only on the keys (T, P, the gates), and another what depends on the
/// state. With few heads, helper blocks publish the former in global memory (L2), and state blocks take 64 value
/// columns each (split.cuh); with many heads, both kinds are in one block (fused.cuh).
namespace samestate::cuda {

inline constexpr int kChunk = kTileRows;
inline constexpr int kPanels = 2;  ///< tiles side by side: keys up to 128
inline constexpr int kFusedKeys = kPanels * kTileColumns;
inline constexpr int kMakers = 2;  ///< warpgroups of a block that prepare, chunk by chunk in turn
inline constexpr int kMostSegments = 4;

/// The data of one chunk of one value head that depend only on keys and gates; T and P are swizzled tiles.
struct alignas(1024) Prepared {
  Bf16 T[kTileBytes / 2];
  Bf16 P[kTileBytes / 2];
  float beta[kChunk];        ///< b
  float beta_start[kChunk];  ///< b e^G r
  float to_end[kChunk];      ///< e^{G_C - G} r
  float out_start[kChunk];   ///< scale e^G r^q
  float over[4];             ///< e^{G_C}, four times

  static constexpr int kBytes = 2 * kTileBytes + 4 * (4 * kChunk + 4);  ///< bytes that are used
};

/// The input from which a chunk is prepared, besides its keys and queries.
struct Gates {
  alignas(16) float decay[kChunk];       ///< G log2 e
  alignas(16) float beta[kChunk];        ///< b
  alignas(16) float key_norm[kChunk];    ///< r
  alignas(16) float query_norm[kChunk];  ///< r^q
};

/// g and beta of a chunk as they are read, two tokens a lane.
using RawGates = float[4][32];

/// One call.
struct Prefill {
  Parameters<Bf16> p;
  Prepared* prepared = nullptr;  ///< [slots(p)]
  int* ready = nullptr;          ///< [slots(p)], the launch that made it
  int* launches = nullptr;       ///< {blocks of this launch that have begun, launches so far}
  const int* order = nullptr;    ///< [sequences], longest first; null for the order of the call
  int group = 1;                 ///< (sequence, head) pairs whose blocks stand together in the grid
  int segments = 1;              ///< blocks that share out the chunks of a sequence, without the delta rule
  int cuts[kMostSegments] = {};  ///< where each begins, in 65,536ths of the chunks
  bool bulk = false;             ///< rows are multiples of 16 bytes: full chunks travel by tiles

  SAMESTATE_HOST_DEVICE std::int64_t items() const { return p.sequences * p.Hv; }
  /// Blocks that share out the value columns of a (sequence, head), `columns` each.
  SAMESTATE_HOST_DEVICE int value_tiles(int columns) const { return (p.dv + columns - 1) / columns; }
  /// Chunks before sequence n are at most first_token / chunk + n.
  SAMESTATE_HOST_DEVICE static std::int64_t slots(const Parameters<Bf16>& p, std::int64_t tokens) {
    return (tokens / p.chunk + p.sequences + 1) * p.Hv;
  }
};

/// The tensors of a call as tiles; unused if the size of a row is not a multiple of 16 bytes.
struct Maps {
  TensorMap q, k, v, o;
};

/// The work of one block.
struct Task {
  bool exists = false;
  bool helper = false;  ///< true for a helper block of the split form
  int part = 0;         ///< which of the helpers, or of the value tiles
  std::int64_t first_token = 0, tokens = 0, slot = 0, state = 0;
  int head = 0, key_head = 0, chunks = 0;
  int whole = 0;     ///< chunks that travel by tiles
  int first = 0;     ///< the chunk of a segment from which on it makes O, until `chunks`; before it, only S
  bool last = true;  ///< true for the last segment, which writes the final state
};

/// The (sequence, head) pair `item`.
SAMESTATE_DEVICE void assign(Task& x, const Prefill& c, std::int64_t item) {
  const Parameters<Bf16>& p = c.p;
  x.exists = item < c.items();
  if (!x.exists) return;
  const std::int64_t n = c.order ? c.order[item / p.Hv] : item / p.Hv;
  x.head = static_cast<int>(item % p.Hv);
  x.key_head = static_cast<int>(p.tiled_heads ? x.head % p.Hk : x.head / (p.Hv / p.Hk));
  x.first_token = p.cu_seqlens ? p.cu_seqlens[n] : n * p.T;
  x.tokens = p.cu_seqlens ? p.cu_seqlens[n + 1] - x.first_token : p.T;
  x.chunks = static_cast<int>((x.tokens + p.chunk - 1) / p.chunk);
  x.whole = c.bulk ? static_cast<int>(x.tokens / kChunk) : 0;
  x.slot = (x.first_token / p.chunk + n) * p.Hv + x.head;  // of chunk m: slot + m Hv
  x.state = (n * p.Hv + x.head) * p.dk * p.dv;
}

/// Segment `i` of the task's chunks. S without the delta rule costs so little that every segment carries it from the
/// sequence's start by itself: the bits are those of one block. It begins at an even chunk, the first maker's.
SAMESTATE_DEVICE void cut(Task& x, const Prefill& c, int i) {
  const auto start = [&](int segment) {
    return static_cast<int>(static_cast<std::int64_t>(x.chunks) * c.cuts[segment] / 65536 / kMakers *
                            kMakers);
  };
  x.last = i == c.segments - 1;
  x.first = start(i);
  if (!x.last) x.chunks = start(i + 1);
  if (x.first >= x.chunks) x.first = x.chunks = 0;
}

/// A ring of shared memory that one role fills and others empty: stage and phase follow from the chunk's number.
template <int stages>
struct Ring {
  static constexpr int kStages = stages;
  Barrier full[stages], empty[stages];

  SAMESTATE_DEVICE static int stage(int n) { return n % stages; }
  SAMESTATE_DEVICE static int phase(int n) { return n / stages; }
  /// Readers arrive a warp at a time.
  SAMESTATE_DEVICE void init(int fillers, int reading_warps) {
    for (Barrier& b : full) b.init(fillers);
    for (Barrier& b : empty) b.init(reading_warps);
  }
  SAMESTATE_DEVICE void wait_full(int n) { full[stage(n)].wait(phase(n)); }
  SAMESTATE_DEVICE void wait_empty(int n) { empty[stage(n)].wait(phase(n) - 1); }
  SAMESTATE_DEVICE void release(int n) { empty[stage(n)].arrive_warp(); }
};

}  // namespace samestate::cuda

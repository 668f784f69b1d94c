#pragma once

#include <cstdint>

#include "optimized/cuda/delta/chunk_mma_dense_generic.cuh"

/// Chunked prefill in fp32, contract fp32_fused (EQUATIONS 5.5, state first as in chunk_wgmma_dense/layout.cuh), by FMAs: what
/// depends on keys and gates alone by one launch (prepare.cuh), the state by a second one (chain.cuh), whose blocks
/// carry 32 value columns each.
namespace samestate::cuda::simt {

inline constexpr int kThreads = 256;
inline constexpr int kChunk = 64;    ///< rows; those past a chunk's end are tokens that do nothing
inline constexpr int kKeys = 128;    ///< columns of q and k; those past dk are zero
inline constexpr int kColumns = 32;  ///< value columns of a block
// Floats a row: odd multiples of 16 bytes, so that eight rows of one column meet eight different banks.
inline constexpr int kKeyStride = kKeys + 4, kSquareStride = kChunk + 4, kValueStride = kColumns + 4;

/// Only the 16 x 16 blocks of T and P on and below the diagonal exist.
SAMESTATE_DEVICE bool below_diagonal(int row, int column) { return column / 16 <= row / 16; }

/// The data of one chunk of one value head that depend only on keys and gates.
struct alignas(16) Prepared {
  float T[kChunk * kChunk];
  float P[kChunk * kChunk];
  float beta[kChunk];        ///< b
  float beta_start[kChunk];  ///< b e^G r
  float to_end[kChunk];      ///< e^{G_C - G} r
  float out_start[kChunk];   ///< scale e^G r^q
  float over[4];             ///< e^{G_C}

  static constexpr int kGates = 4 * kChunk + 4;  ///< floats from beta on
};

/// One call.
struct Work {
  Parameters<float> p;
  Prepared* prepared = nullptr;  ///< [slots(), Hv]
  std::int64_t tokens = 0;       ///< rows of q, of all sequences

  SAMESTATE_HOST_DEVICE std::int64_t slots() const { return tokens / p.chunk + p.sequences + 1; }
  SAMESTATE_HOST_DEVICE int value_tiles() const { return (p.dv + kColumns - 1) / kColumns; }
  SAMESTATE_HOST_DEVICE std::int64_t chain_blocks() const { return p.sequences * p.Hv * value_tiles(); }
  SAMESTATE_HOST_DEVICE std::int64_t prepare_blocks() const { return slots() * p.Hk; }

  SAMESTATE_DEVICE std::int64_t first_token(std::int64_t n) const {
    return p.cu_seqlens ? p.cu_seqlens[n] : n * p.T;
  }
  /// Returns the slot of the first chunk of sequence n: no two sequences share one.
  SAMESTATE_DEVICE std::int64_t first_slot(std::int64_t n) const { return first_token(n) / p.chunk + n; }
  SAMESTATE_DEVICE std::int64_t key_head(std::int64_t head) const {
    return p.tiled_heads ? head % p.Hk : head / (p.Hv / p.Hk);
  }
};

/// Stores as much as fits into one access of 16 bytes.
SAMESTATE_DEVICE void store_quad(float* to, const float (&x)[4]) {
  *reinterpret_cast<Quad*>(to) = Quad{x[0], x[1], x[2], x[3]};
}

/// Where a thread stands: a warp is 8 x 4 of them, so placed that lanes which share a row, and lanes which share a
/// column, are neighbours (an access of 16 bytes is then served for half a warp at a time).
struct Place {
  int row, column;

  /// The threads form `across` columns, a multiple of 4.
  SAMESTATE_DEVICE explicit Place(int across) {
    const int lane = lane_index();
    row = warp_index() / (across / 4) * 8 + lane / 16 * 4 + lane / 8 % 2 * 2 + lane / 2 % 2;
    column = warp_index() % (across / 4) * 4 + lane / 4 % 2 * 2 + lane % 2;
  }
};

/// Element `l` of four.
SAMESTATE_DEVICE float part(const Quad& x, int l) { return l == 0 ? x.x : l == 1 ? x.y : l == 2 ? x.z : x.w; }

}  // namespace samestate::cuda::simt

#pragma once

#include <cstdint>

#include "optimized/cuda/units/intrinsics.cuh"

namespace samestate::cuda {

/// One call as the device sees it: dense row-major tensors in device memory. Operand is float (contract fp32)
/// or Bf16 (contract bf16), State too; gates are fp32. Token t of sequence n is row n T + t, or
/// cu_seqlens[n] + t when packed.
template <class Operand, class State = float>
struct Parameters {
  const Operand* q = nullptr;                ///< [B T, Hk, dk]
  const Operand* k = nullptr;                ///< [B T, Hk, dk]
  const Operand* v = nullptr;                ///< [B T, Hv, dv]
  const float* g = nullptr;                  ///< [B T, Hv]; null if there is no decay
  const float* beta = nullptr;               ///< [B T, Hv]; null means 1
  const State* initial_state = nullptr;      ///< [N, Hv, dk, dv]; null means 0; may be final_state
  State* final_state = nullptr;              ///< [N, Hv, dk, dv]; null if it is not wanted
  Operand* o = nullptr;                      ///< [B T, Hv, dv]
  const std::int64_t* cu_seqlens = nullptr;  ///< [N + 1]; null for N sequences of T tokens
  std::int64_t sequences = 0, T = 0, Hk = 1, Hv = 1;
  int dk = 1, dv = 1;
  float scale = 1.0F;
  float inverse_heads = 1;   ///< decode: 1 / (Hv / Hk), or 1 / Hk where tiled_heads
  bool tiled_heads = false;  ///< key head h mod Hk instead of h / (Hv / Hk)
  bool l2norm = false;
  bool round_qk = false;  ///< recurrent form: normalised q and k are rounded to Operand
  bool ex2 = false;       ///< decode: e^g by the special function unit (Exponential::ex2)
  bool settled = false;   ///< decode: no grid that may still run writes initial_state
  int chunk = 1;          ///< chunked form
  int tile = 32;          ///< columns of v and of the state that one block handles

  SAMESTATE_HOST_DEVICE std::int64_t tiles() const { return (dv + tile - 1) / tile; }
  SAMESTATE_HOST_DEVICE std::int64_t items() const { return sequences * Hv * tiles(); }
};

/// The work of one block: a tile of columns of one head of one sequence. Items are numbered along one axis,
/// whose grid limit is 2^31 - 1, while that of the others is 65535.
struct Item {
  std::int64_t first_token = 0;  ///< row of token 0
  std::int64_t tokens = 0;
  std::int64_t head = 0, key_head = 0;
  std::int64_t state = 0;  ///< offset of state[n, head, 0, column]
  int column = 0;          ///< first column of the tile
  int columns = 0;         ///< columns of the tile that exist
};

template <class Operand>
SAMESTATE_DEVICE Item item_of(const Parameters<Operand>& p, std::int64_t index) {
  Item x;
  const std::int64_t tiles = p.tiles();
  const std::int64_t n = index / tiles / p.Hv;
  x.column = static_cast<int>(index % tiles) * p.tile;
  x.columns = p.dv - x.column < p.tile ? p.dv - x.column : p.tile;
  x.head = index / tiles % p.Hv;
  x.key_head = p.tiled_heads ? x.head % p.Hk : x.head / (p.Hv / p.Hk);
  x.first_token = p.cu_seqlens ? p.cu_seqlens[n] : n * p.T;
  x.tokens = p.cu_seqlens ? p.cu_seqlens[n + 1] - x.first_token : p.T;
  x.state = (n * p.Hv + x.head) * p.dk * p.dv + x.column;
  return x;
}

/// x <- x (sum x^2 + 1e-6)^-1/2 over one row of `width` values in shared memory, by one warp, rounded to
/// Operand where `round` (EQUATIONS 5.2; epsilon inside the root, added to the sum).
template <class Operand, class Stored>
SAMESTATE_DEVICE void normalize_row(Stored* row, int width, bool round) {
  float sum = 0.0F;
  for (int c = lane_index(); c < width; c += 32) sum = fused(widen(row[c]), widen(row[c]), sum);
  const float factor = inverse_root(warp_sum(sum) + 1e-6F);
  for (int c = lane_index(); c < width; c += 32) {
    const float x = widen(row[c]) * factor;
    row[c] = narrow<Stored>(round ? widen(narrow<Operand>(x)) : x);
  }
}

}  // namespace samestate::cuda

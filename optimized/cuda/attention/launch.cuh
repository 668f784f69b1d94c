#pragma once

#include <cstdint>
#include <type_traits>

#include "optimized/cuda/attention/chunk_fma.cuh"
#include "optimized/cuda/attention/chunk_mma.cuh"
#include "optimized/cuda/attention/chunk_wgmma.cuh"
#include "optimized/cuda/attention/token_mma.cuh"

/// Which of the kernels takes a softmax attention, and its launches: the tiles, then the parts together.
namespace samestate::cuda {

/// Blocks that keep the bus busy: two rounds of an H100's 132.
inline constexpr std::int64_t kAttentionBlocks = 264;
inline constexpr int kMostTileWidth = 256;

template <int width>
using PrefillTiles = AttentionTiles<width, width, 4, 2, 2, 2>;
template <int width>
using DecodeTiles = AttentionTiles<width, width, 1, 1, 4, 3>;

template <class Operand>
bool in_tiles(const AttentionParameters<Operand>& p) {
  return std::is_same_v<Operand, Bf16> && p.width % 8 == 0 && p.value_width % 8 == 0 &&
         p.width <= kMostTileWidth && p.value_width <= kMostTileWidth;
}

/// Rows that fill most of a large tile take one.
template <class Operand>
bool many_rows(const AttentionParameters<Operand>& p) {
  return p.rows() > 48;
}

/// Returns the number of keys of the tile that is a chunk of `p`, or of all keys if they form one chunk; 0 if
/// there is no such tile.
template <class Operand>
int chunk_tile(const AttentionParameters<Operand>& p) {
  const std::int64_t keys = p.keys < p.chunk ? p.keys : p.chunk;
  const bool one = p.keys <= p.chunk;
  if (keys == 64 || (one && keys < 64)) return 64;
  if (keys == 128 || (one && keys < 128)) return 128;
  return 0;
}

/// Returns true if the asynchronous unit takes it; widths beyond 128 leave no registers for the scores of 128
/// keys.
template <class Operand>
bool in_prefill(const AttentionParameters<Operand>& p) {
  const int width = p.width > p.value_width ? p.width : p.value_width;
  const int tile = chunk_tile(p);
  return has_asynchronous_products() && in_tiles(p) && p.running && many_rows(p) && p.gate_stride % 2 == 0 &&
         p.key_stride % 8 == 0 && p.value_stride % 8 == 0 && tile > 0 && (tile == 64 || width <= 128);
}

/// Returns the same for few rows.
template <class Operand>
bool in_decode(const AttentionParameters<Operand>& p) {
  return has_asynchronous_products() && in_tiles(p) && !many_rows(p) && p.key_stride % 8 == 0 &&
         p.value_stride % 8 == 0 && chunk_tile(p) == 64;
}

/// Splits the keys for its kernel, whose blocks keep 96 KB in flight each: that many keep the bus busy, and
/// half of them so nearly that merging parts would take longer. Blocks of narrow heads wait for their
/// products too.
template <class Operand>
void split_decode(AttentionParameters<Operand>& p) {
  const std::int64_t tiles = p.row_tiles(AttentionDecode<1>::kRows) * p.batch * p.key_heads;
  const std::int64_t blocks = (p.width <= 64 && p.value_width <= 64 ? 2 : 1) * kAttentionBlocks / 2;
  split_keys(p, tiles, 2 * tiles < blocks - 4 ? blocks : tiles);
}

/// Splits the keys and takes the memory of the parts from `tensors`.
template <class Operand, class Tensors>
void prepare_attention(AttentionParameters<Operand>& p, Tensors& tensors) {
  const int rows = !in_tiles(p)   ? AttentionRows<Operand>::kRows
                   : many_rows(p) ? PrefillTiles<64>::kRows
                                  : DecodeTiles<64>::kRows;
  if (in_decode(p)) {
    split_decode(p);
  } else {
    split_keys(p, p.row_tiles(rows) * p.batch * p.key_heads, kAttentionBlocks);
  }
  if (p.parts == 1) return;
  const std::int64_t sums = p.parts * p.batch * p.key_heads * p.rows();
  p.sums = tensors.template scratch<float>(sums * p.summed_width());
  p.largest = tensors.template scratch<float>(sums);
  p.weights = tensors.template scratch<float>(sums);
}

template <int width>
void enqueue_tiles(const AttentionParameters<Bf16>& p, cudaStream_t stream) {
  if (many_rows(p)) {
    PrefillTiles<width>::launch(p, stream);
  } else {
    DecodeTiles<width>::launch(p, stream);
  }
}

inline void enqueue_prefill(const AttentionParameters<Bf16>& p, cudaStream_t stream) {
  const int width = p.width > p.value_width ? p.width : p.value_width;
  if (chunk_tile(p) == 128) {
    AttentionPrefill<2, 2, 2>::launch(p, stream);
  } else if (width <= 64) {
    AttentionPrefill<1, 1, 1>::launch(p, stream);
  } else if (width <= 128) {
    AttentionPrefill<2, 2, 1>::launch(p, stream);
  } else {
    AttentionPrefill<4, 4, 1>::launch(p, stream);
  }
}

inline void enqueue_decode(const AttentionParameters<Bf16>& p, cudaStream_t stream) {
  const int width = p.width > p.value_width ? p.width : p.value_width;
  if (width <= 64) {
    AttentionDecode<1>::launch(p, stream);
  } else if (width <= 128) {
    AttentionDecode<2>::launch(p, stream);
  } else {
    AttentionDecode<4>::launch(p, stream);
  }
}

template <class Operand>
void enqueue_attention(const AttentionParameters<Operand>& p, cudaStream_t stream) {
  bool done = false;
  if constexpr (std::is_same_v<Operand, Bf16>) {
    if (in_prefill(p)) {
      enqueue_prefill(p, stream);
      done = true;
    } else if (in_decode(p)) {
      enqueue_decode(p, stream);
      done = true;
    } else if (in_tiles(p)) {
      const int width = p.width > p.value_width ? p.width : p.value_width;
      if (width <= 64) {
        enqueue_tiles<64>(p, stream);
      } else if (width <= 128) {
        enqueue_tiles<128>(p, stream);
      } else {
        enqueue_tiles<256>(p, stream);
      }
      done = true;
    }
  }
  if (!done) AttentionRows<Operand>::launch(p, stream);
  merge_parts(p, stream);
}

}  // namespace samestate::cuda

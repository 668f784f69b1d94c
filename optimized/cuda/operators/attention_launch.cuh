#pragma once

#include <cstdint>
#include <type_traits>

#include "optimized/cuda/operators/attention_rows.cuh"
#include "optimized/cuda/operators/attention_tiles.cuh"

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

/// Splits the keys and takes the memory of the parts from `tensors`.
template <class Operand, class Tensors>
void prepare_attention(AttentionParameters<Operand>& p, Tensors& tensors) {
  const int rows = !in_tiles(p)   ? AttentionRows<Operand>::kRows
                   : many_rows(p) ? PrefillTiles<64>::kRows
                                  : DecodeTiles<64>::kRows;
  split_keys(p, p.row_tiles(rows) * p.batch * p.key_heads, kAttentionBlocks);
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

template <class Operand>
void enqueue_attention(const AttentionParameters<Operand>& p, cudaStream_t stream) {
  bool done = false;
  if constexpr (std::is_same_v<Operand, Bf16>) {
    if (in_tiles(p)) {
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
  if (p.parts > 1) MergeParts<Operand>::launch(p, stream);
}

}  // namespace samestate::cuda

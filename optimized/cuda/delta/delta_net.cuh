#pragma once

#include <cstdint>

#include "optimized/cuda/delta/token_fma_list.cuh"
#include "optimized/cuda/products/product.cuh"

/// Parts of the Gated DeltaNet layer around its rule (EQUATIONS 5.6): projections from the order of a checkpoint into rows that
/// lie dense for what reads them, the lengths of q and k, and lists of all tokens for the rule.
namespace samestate::cuda {

/// Sizes of the layer, letters as in EQUATIONS 5.6.
struct DeltaNetShape {
  std::int64_t batch = 1;
  std::int64_t tokens = 0;
  int key_heads = 1;
  int served = 1;  ///< value heads a key head
  int dk = 1;
  int dv = 1;

  [[nodiscard]] SAMESTATE_HOST_DEVICE std::int64_t rows() const { return batch * tokens; }
  [[nodiscard]] SAMESTATE_HOST_DEVICE int heads() const { return key_heads * served; }
  [[nodiscard]] SAMESTATE_HOST_DEVICE int keys() const { return key_heads * dk; }
  [[nodiscard]] SAMESTATE_HOST_DEVICE int values() const { return heads() * dv; }
  [[nodiscard]] SAMESTATE_HOST_DEVICE int channels() const { return 2 * keys() + values(); }
};

/// Columns of a projection in the order of a checkpoint, by key head `count` parts one after the other, each to its own rows:
/// column c of part i of key head h becomes column h width[i] + c of to[i]. Pads are zero, as their hidden states are.
template <class Operand, int count>
struct StoreGrouped {
  static constexpr bool kPaired = false;
  Operand* to[count] = {};  ///< [rows, key heads, width]
  int width[count] = {};    ///< width of one key head
  int key_heads = 1;
  const float* mask = nullptr;  ///< [rows], 0: a pad
  bool in_fours = false;        ///< every width is a multiple of four

  template <int n>
  SAMESTATE_DEVICE void operator()(std::int64_t, std::int64_t row, std::int64_t column,
                                   const float (&sums)[n]) const {
    const bool real = mask[row] != 0.0F;
    float values[n];
    SAMESTATE_UNROLL
    for (int i = 0; i < n; ++i) values[i] = real ? sums[i] : 0.0F;
    if (in_fours) return store_adjacent(at(row, static_cast<int>(column)), values);
    SAMESTATE_UNROLL
    for (int i = 0; i < n; ++i) *at(row, static_cast<int>(column) + i) = narrow<Operand>(values[i]);
  }

 private:
  [[nodiscard]] SAMESTATE_DEVICE Operand* at(std::int64_t row, int column) const {
    int group = 0;
    SAMESTATE_UNROLL
    for (int i = 0; i < count; ++i) group += width[i];
    const int head = column / group;
    int rest = column % group, part = 0;
    while (rest >= width[part]) rest -= width[part++];
    return to[part] + (row * key_heads + head) * width[part] + rest;
  }
};

template <class Operand>
struct KeyLengthParameters {
  const Operand* q = nullptr;  ///< [rows, width] convolved, and k
  const Operand* k = nullptr;
  float* q_factor = nullptr;  ///< [rows], and of k
  float* k_factor = nullptr;
  std::int64_t rows = 0;
  int width = 1;
};

/// (sum x^2 + 1e-6)^-1/2 of a row of q or k by one warp, n elements a lane at a time, which divides the width.
template <class Operand, int n>
struct KeyLength {
  using Parameters = KeyLengthParameters<Operand>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return 2 * p.rows; }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t item) {
    const bool is_k = item >= p.rows;
    const std::int64_t row = is_k ? item - p.rows : item;
    const Operand* const x = (is_k ? p.k : p.q) + row * p.width;
    float squares = 0.0F;
    for (int c = lane_index() * n; c < p.width; c += 32 * n) {
      const auto some = *reinterpret_cast<const Vector<Operand, n>*>(x + c);
      SAMESTATE_UNROLL
      for (int i = 0; i < n; ++i) squares = fused(element(some, i), element(some, i), squares);
    }
    const float factor = inverse_root(warp_sum(squares) + 1e-6F);
    if (lane_index() == 0) (is_k ? p.k_factor : p.q_factor)[row] = factor;
  }
};

struct WholeListParameters {
  DendriticShape shape;
  ListEntry* entries = nullptr;  ///< [B, H, T]
  int* length = nullptr;         ///< [B, H]
};

/// Lists of all tokens.
struct WholeList {
  using Parameters = WholeListParameters;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) {
    return p.shape.lists() * (p.shape.tokens > 0 ? p.shape.tokens : 1);
  }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t i) {
    const DendriticShape& s = p.shape;
    if (i < s.lists()) p.length[i] = static_cast<int>(s.tokens);
    if (s.tokens == 0) return;
    p.entries[i] = {static_cast<int>(i % s.tokens), 0};
  }
};

}  // namespace samestate::cuda

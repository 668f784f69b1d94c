#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "optimized/cpu/block.h"
#include "optimized/cpu/products.h"
#include "reference/contract.h"

/// T = (I + A)^-1 for a strictly lower triangular A [L, L], by the algorithms of BOUNDS 6.
namespace samestate::cpu {

/// Inverts rows and columns [first, first + size) of A into T, by forward substitution in fp32:
/// t_i = e_i - sum_{j < i} A_ij t_j.
inline void invert_by_substitution(const Block& A, Block& T, std::int64_t first, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i) {
    const float* a = A.row(first + i) + first;
    float* t = T.row(first + i) + first;
    for (std::int64_t c = 0; c < size; ++c) t[c] = 0.0F;
    for (std::int64_t j = 0; j < i; ++j) {
      const float* above = T.row(first + j) + first;
      const float factor = -a[j];
      for (std::int64_t c = 0; c <= j; ++c) t[c] = std::fma(factor, above[c], t[c]);
    }
    t[i] = 1.0F;
  }
}

/// The merges of one inverse: the size of the first blocks, and how operands are rounded.
struct Merges {
  std::int64_t base;
  Format operand;
  bool ties_away;  ///< for tf32

  void round(const float* x, float* y, std::int64_t count) const {
    if (!ties_away || operand != Format::tf32) return round_values(x, y, count, operand);
    for (std::int64_t i = 0; i < count; ++i) y[i] = to_tf32_away(x[i]);
  }

  /// The sub-matrix [row, row + rows) x [column, column + columns) of x, rounded.
  [[nodiscard]] Block part(const Block& x, std::int64_t row, std::int64_t rows, std::int64_t column,
                           std::int64_t columns) const {
    Block rounded;
    rounded.resize(rows, columns);
    for (std::int64_t i = 0; i < rows; ++i) round(x.row(row + i) + column, rounded.row(i), columns);
    return rounded;
  }
};

/// Diagonal blocks of `base` x `base` by substitution, then merges T21 = -(T22 A21) T11 with rounded
/// operands.
template <class Sums>
void invert_by_merges(const Sums& sums, const Block& A, Block& T, std::int64_t first, std::int64_t size,
                      const Merges& merges) {
  if (size <= merges.base) return invert_by_substitution(A, T, first, size);
  std::int64_t half = merges.base;
  while (2 * half < size) half *= 2;
  const std::int64_t rest = size - half;
  const std::int64_t middle = first + half;
  invert_by_merges(sums, A, T, first, half, merges);
  invert_by_merges(sums, A, T, middle, rest, merges);
  Block merge;
  product(sums, merges.part(T, middle, rest, middle, rest), merges.part(A, middle, rest, first, half), merge);
  merges.round(merge.values.data(), merge.values.data(), merge.size());
  Block corner;
  product(sums, merge, merges.part(T, first, half, first, half), corner);
  for (std::int64_t i = 0; i < rest; ++i) {
    for (std::int64_t j = 0; j < half; ++j) T.row(middle + i)[first + j] = -corner.row(i)[j];
  }
  for (std::int64_t i = 0; i < half; ++i) std::fill_n(T.row(first + i) + middle, rest, 0.0F);
}

/// The same blocks, one block row after the other (MergeOrder::rows): below the first block diagonal the sum
/// over m is one product with an inner extent of i - j blocks, rounded once as operand of T_ii.
template <class Sums>
void invert_by_rows(const Sums& sums, const Block& A, Block& T, const Merges& merges) {
  const std::int64_t L = A.rows;
  const auto size = [&](std::int64_t first) { return std::min(merges.base, L - first); };
  Block sum;
  Block corner;
  for (std::int64_t i = 0; i < L; i += merges.base) {
    for (std::int64_t r = i; r < i + size(i); ++r) std::fill_n(T.row(r), T.stride, 0.0F);
    invert_by_substitution(A, T, i, size(i));
    for (std::int64_t j = i - merges.base; j >= 0; j -= merges.base) {
      const Block diagonal = merges.part(T, i, size(i), i, size(i));
      if (i - j == merges.base) {
        product(sums, diagonal, merges.part(A, i, size(i), j, size(j)), sum);
        merges.round(sum.values.data(), sum.values.data(), sum.size());
        product(sums, sum, merges.part(T, j, size(j), j, size(j)), corner);
      } else {
        product(sums, merges.part(A, i, size(i), j, i - j), merges.part(T, j, i - j, j, size(j)), sum);
        merges.round(sum.values.data(), sum.values.data(), sum.size());
        product(sums, diagonal, sum, corner);
      }
      for (std::int64_t r = 0; r < size(i); ++r) {
        for (std::int64_t c = 0; c < size(j); ++c) T.row(i + r)[j + c] = -corner.row(r)[c];
      }
    }
  }
}

/// Neumann doubling: X <- X + X A^{2^k} from X = I - A, with rounded operands. (I + A)^-1 = prod (I +
/// A^{2^k}) (I - A).
template <class Sums>
void invert_by_doubling(const Sums& sums, const Block& A, Block& T, Format operand) {
  Block power = A;
  Block next;
  Block left;
  Block right;
  for (std::int64_t i = 0; i < A.rows; ++i) {
    for (std::int64_t j = 0; j < A.stride; ++j) T.row(i)[j] = (i == j ? 1.0F : 0.0F) - A.row(i)[j];
  }
  for (std::int64_t terms = 2; terms < A.rows; terms *= 2) {
    const Block& factor = rounded(power, operand, right);
    product(sums, factor, factor, next);
    std::swap(power, next);
    product(sums, rounded(T, operand, left), rounded(power, operand, right), next);
    for (std::int64_t i = 0; i < T.size(); ++i) T.values[i] += next.values[i];
  }
}

/// T = (I + A)^-1 as the contract computes it. The diagonal and upper part of A are zero.
template <class Sums>
void invert(const Sums& sums, const Contract& contract, const Block& A, Block& T) {
  T.resize(A.rows, A.columns);
  const auto merged = [&](const Merges& merges) {
    return contract.merges == MergeOrder::rows ? invert_by_rows(sums, A, T, merges)
                                               : invert_by_merges(sums, A, T, 0, A.rows, merges);
  };
  switch (contract.inverse) {
    case Inverse::substitution:
      return invert_by_substitution(A, T, 0, A.rows);
    case Inverse::block16:
      return merged({16, contract.inverse_operand, false});
    case Inverse::block8:
      return merged({8, contract.inverse_operand, true});
    case Inverse::neumann:
      return invert_by_doubling(sums, A, T, contract.inverse_operand);
  }
}

}  // namespace samestate::cpu

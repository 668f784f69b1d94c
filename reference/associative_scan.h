#pragma once

#include "reference/error.h"
#include "reference/sequence.h"

/// Inclusive scans of the linear recurrence h_t = a_t h_{t-1} + b_t, elementwise (EQ-17). The maps h |-> a h
/// + b compose associatively but do not commute, so all prefixes can be computed in O(log T) rounds (SSM-2,
/// SSM-3). Every scan takes any T, including 0 and lengths that are not powers of two.
namespace samestate {

/// One map per row: h |-> a_t h + b_t. In the result of a scan, row t is the composition of maps 0 .. t.
template <class Scalar>
struct DiagonalMaps {
  Matrix<Scalar> a;  ///< [T, K]
  Matrix<Scalar> b;  ///< [T, K]
};

namespace detail {

/// Sets row `into` of `out` to the composition of row i of `earlier`, applied first, and row j of `later`.
/// `out` may alias either of them.
template <class Scalar>
void compose_maps(const DiagonalMaps<Scalar>& earlier, Index i, const DiagonalMaps<Scalar>& later, Index j,
                  DiagonalMaps<Scalar>& out, Index into) {
  for (Index k = 0; k < out.a.cols(); ++k) {
    const Scalar a = later.a(j, k) * earlier.a(i, k);
    const Scalar b = later.a(j, k) * earlier.b(i, k) + later.b(j, k);
    out.a(into, k) = a;
    out.b(into, k) = b;
  }
}

template <class Scalar>
void require_maps(const DiagonalMaps<Scalar>& maps) {
  if (maps.a.rows() != maps.b.rows() || maps.a.cols() != maps.b.cols()) {
    throw Error("scan: a is " + std::to_string(maps.a.rows()) + " x " + std::to_string(maps.a.cols()) +
                ", b is " + std::to_string(maps.b.rows()) + " x " + std::to_string(maps.b.cols()) +
                "; they must agree");
  }
}

}  // namespace detail

/// All prefixes: each row is composed with the row 1, 2, 4, .. before it (Hillis-Steele), in log2 T rounds
/// and O(T log T) work. Throws Error if a and b differ in shape.
template <class Scalar>
[[nodiscard]] DiagonalMaps<Scalar> hillis_steele_scan(DiagonalMaps<Scalar> maps) {
  detail::require_maps(maps);
  const Index T = maps.a.rows();
  for (Index reach = 1; reach < T; reach *= 2) {
    DiagonalMaps<Scalar> wider = maps;
    for (Index t = reach; t < T; ++t) detail::compose_maps(maps, t - reach, maps, t, wider, t);
    maps = std::move(wider);
  }
  return maps;
}

/// All prefixes, by a tree of partial compositions that is walked up and then down (Blelloch), in 2 log2 T
/// rounds and O(T) work. The tree is padded to a power of two with the identity map. Throws Error if a and b
/// differ in shape.
template <class Scalar>
[[nodiscard]] DiagonalMaps<Scalar> blelloch_scan(const DiagonalMaps<Scalar>& maps) {
  detail::require_maps(maps);
  const Index T = maps.a.rows();
  const Index K = maps.a.cols();
  Index leaves = 1;
  while (leaves < T) leaves *= 2;
  DiagonalMaps<Scalar> tree{Matrix<Scalar>::Ones(leaves, K), Matrix<Scalar>::Zero(leaves, K)};
  tree.a.topRows(T) = maps.a;
  tree.b.topRows(T) = maps.b;
  for (Index half = 1; half < leaves; half *= 2) {
    for (Index right = 2 * half - 1; right < leaves; right += 2 * half) {
      detail::compose_maps(tree, right - half, tree, right, tree, right);
    }
  }
  // On the way down each node holds the composition of everything before its subtree; nothing comes before
  // the root.
  tree.a.row(leaves - 1).setOnes();
  tree.b.row(leaves - 1).setZero();
  for (Index half = leaves / 2; half >= 1; half /= 2) {
    for (Index right = 2 * half - 1; right < leaves; right += 2 * half) {
      const Index left = right - half;
      const DiagonalMaps<Scalar> subtree{tree.a.row(left), tree.b.row(left)};
      tree.a.row(left) = tree.a.row(right);
      tree.b.row(left) = tree.b.row(right);
      detail::compose_maps(tree, right, subtree, 0, tree, right);
    }
  }
  DiagonalMaps<Scalar> prefix = maps;
  for (Index t = 0; t < T; ++t) detail::compose_maps(tree, t, maps, t, prefix, t);
  return prefix;
}

}  // namespace samestate

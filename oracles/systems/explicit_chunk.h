#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

#include "oracles/bounds/drawn_sums.h"
#include "oracles/bounds/running_error.h"
#include "oracles/bounds/shared.h"
#include "oracles/bounds/stochastic.h"
#include "reference/recurrence.h"
#include "reference/rounding_point.h"

/// The chunked form as kernels evaluate it. Two of its roundings differ from those of the reference's chunk,
/// and the running error must include them: decays are differences of one cumulative sum of g, and the
/// triangular system is solved by its inverse.
namespace samestate {

namespace points {
inline constexpr PointRow kExplicitChunkRows[] = {
    {"key_products", "k k^T of a chunk.", PointUse::product},
    {"T", "T = (I + A)^-1 of a chunk, after the substitution."},
    {"residual",
     "beta V, beta e^G K, U and W as one, in a kernel that makes V' = T (beta V - beta e^G K S)."},
    {"beta_v", "beta V of a chunk."},
    {"beta_k", "beta e^G K of a chunk."},
    {"U", "U = T beta V.", PointUse::both},
    {"W", "W = T beta e^G K.", PointUse::both},
    {"state_operand", "S as an operand of products."},
    {"read_by_W", "W S.", PointUse::product},
    {"scores", "q k^T of a chunk.", PointUse::product},
    {"P", "The decayed scores of a chunk."},
    {"read", "q S of a chunk.", PointUse::product},
    {"values", "P V'.", PointUse::product},
    {"v_new", "V' = U - W S, an operand of P V'."},
    {"v_decayed", "V' after its decay to the end of the chunk."},
    {"state", "k^T times the decayed V'.", PointUse::product},
};
inline constexpr PointTable explicit_chunk{"explicit_chunk", PointTier::evaluation, kExplicitChunkRows};
}  // namespace points

/// The effective g. G_t = fl(G_{t-1} + g_t) makes G_t - G_{t-1} = g_t + d with |d| <= u |G_t|, exactly, so a
/// difference G_i - G_j is the exact sum of these; its own rounding is at most u times their sum and is
/// shared out among them. Kernels clamp g at kDecayFloor, which bounds |G_t|.
[[nodiscard]] inline Vector<Running> cumulative_decay(const Vector<Running>& g) {
  constexpr double kSlack = 1.01;  // covers terms of second order in u, and (1 + u)^n in the growth of G
  const RunningModel& model = detail::running_model();
  Vector<Running> out(g.size());
  double total = 0.0;
  for (Index t = 0; t < g.size(); ++t) {
    const double error = g(t).error();
    const double size = std::abs(g(t).value()) + error;
    total += std::min(size, error - bounds::kDecayFloor);
    out(t) = Running::within(g(t).value(), error + kSlack * model.unit * (total + size) + model.tiny)
                 .made_of(g(t));
  }
  return out;
}

/// A sample draws these roundings; after an entry of 2000, values differ from the given ones by the last
/// place of that entry.
[[nodiscard]] inline Vector<Stochastic> cumulative_decay(const Vector<Stochastic>& g) {
  return of_drawn_sums(g, bounds::kDecayFloor);
}

/// A matrix that is read repeatedly. For samples its roundings are drawn here, once; otherwise they would be
/// drawn at each use.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> once_drawn(Matrix<Scalar> x) {
  if constexpr (std::is_same_v<Scalar, Stochastic>) {
    for (Index i = 0; i < x.size(); ++i) x.data()[i] = Stochastic(x.data()[i].value());
  }
  return x;
}

/// (I + A)^-1 by substitution, with A strictly lower triangular: I + N with N = -(A + A N), row by row and
/// without the zeros above the diagonal. [L, L] -> [L, L].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> unit_lower_inverse(const Matrix<Scalar>& A) {
  constexpr Index kColumns = 8;  // columns per product, at the cost of zeros in its first rows
  const Index L = A.rows();
  const Matrix<Scalar> factors = once_drawn(A);
  Matrix<Scalar> N = Matrix<Scalar>::Zero(L, L);
  for (Index j = 0; j < L; j += kColumns) {
    for (Index i = j + 1; i < L; ++i) {
      const Index n = std::min({kColumns, L - j, i - j});
      Matrix<Scalar> row = A.block(i, j, 1, n);
      if (i - j > 1) row += factors.block(i, j + 1, 1, i - j - 1) * N.block(j + 1, j, i - j - 1, n);
      N.block(i, j, 1, n) = once_drawn<Scalar>(-row);
    }
  }
  for (Index i = 0; i < L; ++i) N(i, i) = Scalar(1);
  return N;
}

/// Where a chunk's operands are rounded: each at a point of its own; or beta V, beta K, U and W at a common
/// point, so that a kernel that makes V' = T (beta V - beta e^G K S) from an unrounded residual has none of
/// the four.
enum class ChunkPlaces { apart, residual };

/// One chunk of at least one token from x.initial_state: the decays above and, with a delta term, T = (I +
/// A)^-1, U = T beta V, W = T beta e^G K, V' = U - W S (EQUATIONS 5.5). Every operand of a product may be
/// kept in 16 bits or rounded to tf32, as in kernels on tensor cores; the substitution that makes T is not
/// such a product.
template <class System, class Scalar>
[[nodiscard]] Trajectory<Scalar> explicit_chunk(Sequence<Scalar> x, ChunkPlaces places = ChunkPlaces::apart) {
  x.g = cumulative_decay(x.g);
  if constexpr (!System::delta) {
    return System::chunk(x);
  } else {
    constexpr const PointTable& at = points::explicit_chunk;
    const Index L = x.tokens();
    const Matrix<Scalar>& S = x.initial_state;
    const Matrix<Scalar> D = decay_between(x.g);
    const Vector<Scalar> e = decay_from_start(x.g);
    const Matrix<Scalar> KK = matrix_product(x.k, x.k.transpose(), at["key_products"]);
    const Matrix<Scalar> A = lower<Scalar>(x.beta.asDiagonal() * KK.cwiseProduct(D), -1);
    const Matrix<Scalar> T = stored<Scalar>(unit_lower_inverse<Scalar>(A), at["T"]);
    const auto kept = [&](Matrix<Scalar> factor, Point point) {
      return stored<Scalar>(std::move(factor), places == ChunkPlaces::residual ? at["residual"] : point);
    };
    const Matrix<Scalar> betaV = kept(x.beta.asDiagonal() * x.v, at["beta_v"]);
    const Matrix<Scalar> betaK = kept(x.beta.cwiseProduct(e).asDiagonal() * x.k, at["beta_k"]);
    const Matrix<Scalar> U = kept(matrix_product(T, betaV, at["U"]), at["U"]);
    const Matrix<Scalar> W = kept(matrix_product(T, betaK, at["W"]), at["W"]);
    // Rounded as an operand of products; the state that is carried stays in working precision.
    const Matrix<Scalar> operand = stored(S, at["state_operand"]);
    Trajectory<Scalar> out;
    out.delta = U - matrix_product(W, operand, at["read_by_W"]);
    const Matrix<Scalar> QK = matrix_product(x.q, x.k.transpose(), at["scores"]);
    const Matrix<Scalar> P = stored<Scalar>(lower<Scalar>(QK.cwiseProduct(D), 0), at["P"]);
    const Matrix<Scalar> QS = matrix_product(x.q, operand, at["read"]);
    out.o = x.scale * (e.asDiagonal() * QS + matrix_product(P, stored(out.delta, at["v_new"]), at["values"]));
    const Matrix<Scalar> decayed =
        stored<Scalar>(D.row(L - 1).transpose().asDiagonal() * out.delta, at["v_decayed"]);
    out.state = e(L - 1) * S + matrix_product(x.k.transpose(), decayed, at["state"]);
    return out;
  }
}

/// A sequence in such chunks, the last one possibly shorter; T = 0 returns the initial state. Throws Error
/// for chunk < 1.
template <class System, class Scalar>
[[nodiscard]] Trajectory<Scalar> explicitly_chunked(const Sequence<Scalar>& x, Index chunk,
                                                    ChunkPlaces places = ChunkPlaces::apart) {
  if (chunk < 1) throw Error("chunk=" + std::to_string(chunk) + ": a chunk holds at least 1 token");
  if (x.tokens() == 0) return empty_trajectory(x);
  std::vector<Index> cuts;
  for (Index t = chunk; t < x.tokens(); t += chunk) cuts.push_back(t);
  return resumed(x, cuts,
                 [places](const Sequence<Scalar>& part) { return explicit_chunk<System>(part, places); });
}

/// True if this evaluation is a sample that associates its product of three matrices the other way. A norm
/// after it removes the error of q k^T that is common to a row of v, but not the errors of single columns of
/// a state, so neither order's errors belong to the population of the other if q and k are nearly orthogonal.
template <class Scalar>
[[nodiscard]] bool associates_otherwise() {
  if constexpr (std::is_same_v<Scalar, Stochastic>)
    return detail::sampling().model.associates_otherwise;
  else
    return false;
}

/// The recurrence of the layers, in `form` and `chunk`: tokens go through the state, or through the scores of
/// chunks. Token by token a kernel may read the old state and add (q k^T) v; a chunk of plain sums may be
/// read from its state.
template <class System, class Scalar>
[[nodiscard]] Trajectory<Scalar> layer_core(const Sequence<Scalar>& x, bool chunked, Index chunk) {
  const bool otherwise = associates_otherwise<Scalar>();
  if (chunked && !(otherwise && !System::delta)) return explicitly_chunked<System>(x, chunk);
  return !chunked && otherwise ? explicitly_chunked<System>(x, 1) : recurrent<System>(x);
}

}  // namespace samestate

#pragma once

#include "oracles/bounds/algebra.h"
#include "oracles/bounds/bound.h"
#include "oracles/bounds/decay.h"

/// The part of a chunk's bound that the delta rule adds: the errors of V' = T (beta V - beta e^G K S).
namespace samestate::bounds {

/// One chunk of L tokens: its exact values, and the magnitudes that the bounds multiply. Names are those of
/// reference/contract.h.
struct Chunk {
  Index L = 0;
  Matrix<double> Q, K;      ///< [L, dk]
  Matrix<double> bV;        ///< [L, dv] beta V
  Matrix<double> V_new;     ///< [L, dv] V'
  Matrix<double> S;         ///< [dk, dv] before the chunk
  Matrix<double> S_next;    ///< [dk, dv] after it
  Matrix<double> KS;        ///< [L, dv]
  Vector<double> beta;      ///< [L]
  Vector<double> v;         ///< [L] row norms of V
  Vector<double> s;         ///< [dk] row norms of S, inflated by its error
  Vector<double> QS;        ///< [L] row norms of Q S
  Vector<double> exp_bias;  ///< [L] the error of e^G that adds linearly from chunk to chunk
  /// [L] size of k_i^T S, where S is the state that token i reads, and of the part that this chunk has
  /// written, if each element of k_i has an error of its own; 0 if no operand is rounded
  Vector<double> read_k, read_k_inside;
  ChunkDecay decay;
};

/// The distance of the kernel's q and k from the exact ones.
struct KeyError {
  double rounding = 0.0;     ///< u_qk: for each element as an operand
  double factor = 0.0;       ///< e: for the l2norm factor, common to a row
  double products = 0.0;     ///< fp32 roundings, in units of u32, of multiplying sums by factor and scale
  bool in_products = false;  ///< the factor multiplies sums, and the operands are q and k as given
};

struct Correction {
  Matrix<double> W;   ///< [L, dk] exact, T beta e^G K: how V' depends on S
  Vector<double> n;   ///< [L] row norms of V', inflated
  Vector<double> dV;  ///< [L] errors of the rows of V' made in this chunk
  Vector<double>
      coherent_write;    ///< [L] |beta| exp_bias ||K S||: the effect of the decay's error on the residual
  double largest = 0.0;  ///< largest magnitude that the kernel must represent in between
  double nonlinearity = 0.0;  ///< ||T dA||
  bool vacuous = false;       ///< the first-order expansion in dA is not accurate enough
};

/// Error of the products X K^T before the decay multiplies them: accumulation, the rounding of both operands
/// (and u_beta_k, that of beta k, for A), and the factors of the l2norm.
template <Mode mode>
[[nodiscard]] Matrix<double> product_error(const Chunk& chunk, const Matrix<double>& X,
                                           const Matrix<double>& value, const Contract& contract,
                                           const KeyError& keys, double u_beta_k) {
  using Norms = Algebra<mode>;
  const Matrix<double> size = Norms::mm(X, chunk.K.transpose());
  const Matrix<double> exact = value.cwiseAbs();
  return Norms::add(Norms::acc(chunk.K.cols(), size, exact, contract.accumulator),
                    Norms::add(Norms::add(keys.rounding, keys.rounding), u_beta_k) * size,
                    Norms::add(keys.factor, keys.factor) * exact);
}

/// Ones on and below the diagonal, or below it alone (Eigen::Lower, Eigen::StrictlyLower).
[[nodiscard]] Matrix<double> ones(Index size, unsigned part);

/// The correction of a chunk that starts from a state with error sigma [dk, dk]. BOUNDS 5, 5.1.
template <Mode mode>
[[nodiscard]] Correction delta_correction(const Chunk& chunk, const Contract& contract, const KeyError& keys,
                                          const Matrix<double>& sigma);

}  // namespace samestate::bounds

#pragma once

#include "fuzz/mutants/family/evaluator.h"

/// The recurrent family in the order of the fused kernels (contracts with `residual` and `reads_old_state`),
/// as plainly as evaluator.h: beta in the residual, the inverse from 8 x 8 blocks, a tree-shaped sum of g,
/// and l2norm and scale as factors of sums. A mutant overrides one stage.
namespace samestate::mutants {

/// True for contracts that only these kernels keep. (recurrent_contract of one has only `reads_old_state` in
/// common.)
[[nodiscard]] bool is_fused(const Contract& contract);

class FusedRecurrent : public Recurrent {
 public:
  using Recurrent::Recurrent;

 protected:
  [[nodiscard]] bool promises() const override { return contract_.reads_old_state; }
  void decay() override;  ///< reads S^T q and S^T k before the decay
  void correct() override;
  void read() override;

  Grid old_, memory_;  ///< [1, dv] S^T q, S^T k before the token
};

class FusedChunked : public Chunked {
 public:
  using Chunked::Chunked;

 protected:
  [[nodiscard]] bool promises() const override { return is_fused(contract_); }
  void load() override;
  void cumulate() override;
  void triangle() override;
  void invert() override;
  void correct() override;
  void scores() override;
  void outputs() override;
  void update() override;
  void readout(Grid&) const override {}  ///< the scale is already in P and in e^G Q S

  /// The l2norm factor of row i of A, of column j of A and P, of beta e^G in the residual, and of e^{G_C -
  /// G}.
  [[nodiscard]] virtual float row_factor(Index i) const { return k_factor_(i); }
  [[nodiscard]] virtual float column_factor(Index j) const { return k_factor_(j); }
  [[nodiscard]] virtual float residual_factor(Index i) const { return k_factor_(i); }
  [[nodiscard]] virtual float write_factor(Index i) const { return k_factor_(i); }
  /// The same for row i of P and of e^G Q S.
  [[nodiscard]] virtual float score_factor(Index i) const { return q_factor_(i); }
  [[nodiscard]] virtual float read_factor(Index i) const { return q_factor_(i); }
  /// One merge T21 = -(T22 A21) T11 of blocks at `first` into one with `size` rows.
  [[nodiscard]] virtual Grid merged(const Grid& product, Index size) const;

  Column q_factor_, k_factor_;

 private:
  void invert(Index first, Index size);
};

}  // namespace samestate::mutants

#include "fuzz/mutants/family/fused.h"
#include "fuzz/mutants/family/rows.h"

/// Mistakes of kernels that take the state first, with beta in the residual (F01-F08): the points that the
/// contracts bf16_fused and fp32_fused add.
namespace samestate::mutants {
namespace {

/// T diag(beta) is stored and V - e^G K S is rounded: where V is on the grid and the correction is small, V'
/// remains V, and so at every later token (stagnation).
struct BetaLeftInT : FusedChunked {
  using FusedChunked::FusedChunked;
  float value_factor(Index) const override { return 1.0F; }
  float key_factor(Index) const override { return 1.0F; }
  void invert() override {
    FusedChunked::invert();
    T_ = (T_ * beta_.asDiagonal()).eval();
  }
};

/// The sums of g are updated in place through the tail while they are read: an element that was already added
/// to is added again.
struct TreeInPlaceAtTail : FusedChunked {
  using FusedChunked::FusedChunked;
  void cumulate() override {
    if (L_ == arguments_.chunk) return FusedChunked::cumulate();
    G_ = g_;
    for (Index distance = 1; distance < L_; distance *= 2) {
      for (Index i = distance; i < L_; ++i) G_(i) += G_(i - distance);
    }
  }
};

struct TriangleRowWithoutFactor : FusedChunked {
  using FusedChunked::FusedChunked;
  float row_factor(Index) const override { return 1.0F; }
};
struct ResidualWithoutFactor : FusedChunked {
  using FusedChunked::FusedChunked;
  float residual_factor(Index) const override { return 1.0F; }
};
struct UpdateWithoutFactor : FusedChunked {
  using FusedChunked::FusedChunked;
  float write_factor(Index) const override { return 1.0F; }
};
struct ReadWithoutFactor : FusedChunked {
  using FusedChunked::FusedChunked;
  float read_factor(Index) const override { return 1.0F; }
};
struct ScoresWithoutFactor : FusedChunked {
  using FusedChunked::FusedChunked;
  float score_factor(Index) const override { return 1.0F; }
};

/// The block that a merge of `rows` rows computes has the wrong sign.
template <Index rows>
struct MergeWithoutSign : FusedChunked {
  using FusedChunked::FusedChunked;
  Grid merged(const Grid& product, Index size) const override {
    return size > rows / 2 && size <= rows ? product : FusedChunked::merged(product, size);
  }
};

struct OldReadWithoutOwnWrite : FusedRecurrent {
  using FusedRecurrent::FusedRecurrent;
  void read() override {
    o_ = alpha_ * old_;
    readout(o_);
  }
};
struct OldReadWithoutDecay : FusedRecurrent {
  using FusedRecurrent::FusedRecurrent;
  void read() override {
    o_ = old_ + k_.dot(q_) * u_;
    readout(o_);
  }
};

struct ResidualWithoutDecay : FusedChunked {
  using FusedChunked::FusedChunked;
  void correct() override {
    const Column factors = exp_G_;
    exp_G_.setOnes();
    FusedChunked::correct();
    exp_G_ = factors;
  }
};

/// The scale is applied only in P.
struct ReadWithoutScale : FusedChunked {
  using FusedChunked::FusedChunked;
  float read_factor(Index i) const override { return FusedChunked::read_factor(i) / scale(); }
};

/// R - V = -beta e^G K S is rounded and V is added afterwards: S K rounds, but the sum does not.
struct ResidualRoundedBeforeV : FusedChunked {
  using FusedChunked::FusedChunked;
  void correct() override {
    Grid R = multiply(rounded(K_, contract_.qk), operand_);
    for (Index i = 0; i < L_; ++i) R.row(i) *= -beta_(i) * exp_G_(i) * residual_factor(i);
    R = rounded(R, contract_.residual) + rounded(beta_.asDiagonal() * V_, contract_.residual);
    V_new_ = multiply(T_, R);
  }
};

const std::vector<std::string> kFused = {"fp32_fused", "bf16_fused"};
const std::vector<std::string> kOnlyBf16Fused = {"bf16_fused"};

template <class Fault>
void add_fused(std::vector<Mutant>& out, const Entry& entry, unsigned systems) {
  constexpr bool chunked = std::is_base_of_v<Chunked, Fault>;
  add<Fault, std::conditional_t<chunked, FusedRecurrent, FusedChunked>>(out, entry, systems);
}

}  // namespace

std::vector<Mutant> fused_mutants() {
  std::vector<Mutant> out;
  add_fused<BetaLeftInT>(
      out,
      {"F01", "beta_left_in_t", "T diag(beta) and V - e^G K S are rounded: small corrections are lost",
       kOnlyBf16Fused},
      kDeltas);
  add_fused<TreeInPlaceAtTail>(
      out,
      {"F02", "tree_in_place_at_tail", "in a tail the tree of g reads sums that it has just written", kFused},
      kGated);
  const char* factor = "the l2norm factor is missing on one of the sums";
  add_fused<TriangleRowWithoutFactor>(out, {"F03", "triangle_row_without_factor", factor, kFused}, kDeltas);
  add_fused<ResidualWithoutFactor>(out, {"F03", "residual_without_factor", factor, kFused}, kDeltas);
  add_fused<UpdateWithoutFactor>(out, {"F03", "update_without_factor", factor, kFused}, kAll);
  add_fused<ReadWithoutFactor>(out, {"F03", "read_without_factor", factor, kFused}, kAll);
  add_fused<ScoresWithoutFactor>(out, {"F03", "scores_without_factor", factor, kFused}, kAll);
  const char* sign = "a merge of the inverse has the wrong sign";
  add_fused<MergeWithoutSign<16>>(out, {"F04", "merge_of_16_without_sign", sign, kFused}, kDeltas);
  add_fused<MergeWithoutSign<32>>(out, {"F04", "merge_of_32_without_sign", sign, kFused}, kDeltas);
  add_fused<MergeWithoutSign<64>>(out, {"F04", "merge_of_64_without_sign", sign, kFused}, kDeltas);
  add_fused<OldReadWithoutOwnWrite>(
      out,
      {"F05", "old_read_without_own_write", "decode reads the old state and leaves u (k . q) out", kFused},
      kAll);
  add_fused<OldReadWithoutDecay>(
      out, {"F05", "old_read_without_decay", "decode reads the old state without e^g", kFused}, kGated);
  add_fused<ResidualWithoutDecay>(
      out, {"F06", "residual_without_decay", "e^G is missing in the residual", kFused}, kGatedDelta);
  add_fused<ReadWithoutScale>(
      out, {"F07", "read_without_scale", "the scale is in P and not in e^G Q S", kFused}, kAll);
  add_fused<ResidualRoundedBeforeV>(
      out,
      {"F08", "residual_rounded_in_parts", "beta V and beta e^G K S are rounded, their difference is not",
       kOnlyBf16Fused},
      kDeltas);
  return out;
}

}  // namespace samestate::mutants

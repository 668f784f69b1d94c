#include <algorithm>
#include <cmath>
#include <utility>

#include "fuzz/mutants/family/rows.h"
#include "optimized/cpu/rounding.h"

/// Bugs of the delta rule: what is written and erased (M13, M17-M20), the triangle and its inverse (M07, M42,
/// M69), the order of operators (M89), and masks that are off by one (M90).
namespace samestate::mutants {
namespace {

struct NoDeltaTermChunked : Chunked {
  using Chunked::Chunked;
  void correct() override { V_new_ = beta_.asDiagonal() * V_; }
};
struct NoDeltaTermRecurrent : Recurrent {
  using Recurrent::Recurrent;
  void correct() override { u_ = beta_ * v_.transpose(); }
};

struct DeltaOnlyWithGateChunked : NoDeltaTermChunked {
  using NoDeltaTermChunked::NoDeltaTermChunked;
  void correct() override { decays() ? Chunked::correct() : NoDeltaTermChunked::correct(); }
};
struct DeltaOnlyWithGateRecurrent : NoDeltaTermRecurrent {
  using NoDeltaTermRecurrent::NoDeltaTermRecurrent;
  void correct() override { decays() ? Recurrent::correct() : NoDeltaTermRecurrent::correct(); }
};

/// A and W use the sums of gates before the token.
struct ErrorBeforeDecayChunked : Chunked {
  using Chunked::Chunked;
  void triangle() override {
    const Grid E = E_;
    for (Index i = 0; decays() && i < L_; ++i) {
      for (Index j = 0; j < i; ++j) E_(i, j) = exponential(std::min(G_(i) - g_(i) - G_(j), 0.0F));
    }
    Chunked::triangle();
    E_ = E;
  }
  void correct() override {
    const Column after = exp_G_;
    for (Index i = 0; decays() && i < L_; ++i) exp_G_(i) = exponential(G_(i) - g_(i));
    Chunked::correct();
    exp_G_ = after;
  }
};
struct ErrorBeforeDecayRecurrent : Recurrent {
  using Recurrent::Recurrent;
  void decay() override {}
  void write() override {
    Recurrent::decay();
    Recurrent::write();
  }
};

struct BetaNotOnValueChunked : Chunked {
  using Chunked::Chunked;
  float value_factor(Index) const override { return 1.0F; }
};
struct BetaNotOnValueRecurrent : Recurrent {
  using Recurrent::Recurrent;
  void correct() override { u_ = v_.transpose() - beta_ * recall(k_); }
};

struct BetaNotOnErasedChunked : Chunked {
  using Chunked::Chunked;
  float key_factor(Index) const override { return 1.0F; }
  void triangle() override {
    const Column beta = beta_;
    beta_.setOnes();
    Chunked::triangle();
    beta_ = beta;
  }
};
struct BetaNotOnErasedRecurrent : Recurrent {
  using Recurrent::Recurrent;
  void correct() override { u_ = beta_ * v_.transpose() - recall(k_); }
};

template <class Base>
struct BetaTwice : Base {
  using Base::Base;
  float strength(float beta) const override { return beta * beta; }
};

struct BetaOnlyInTriangle : Chunked {
  using Chunked::Chunked;
  float key_factor(Index) const override { return 1.0F; }
};

struct TriangleWithoutBeta : Chunked {
  using Chunked::Chunked;
  void triangle() override {
    const Column beta = beta_;
    beta_.setOnes();
    Chunked::triangle();
    beta_ = beta;
  }
};

/// Rows past the tail hold what the previous chunk left there.
struct StaleRowsInTail : Chunked {
  using Chunked::Chunked;
  void load() override {
    const Grid K = K_, V = V_;
    const Column beta = beta_;
    const Index before = first_ > 0 ? K.rows() : 0;
    Chunked::load();
    const Index tail = valid_;
    if (before <= tail) return;
    pad(before);
    K_.bottomRows(before - tail) = K.bottomRows(before - tail);
    V_.bottomRows(before - tail) = V.bottomRows(before - tail);
    beta_.tail(before - tail) = beta.tail(before - tail);
  }
};

struct InverseTransposed : Chunked {
  using Chunked::Chunked;
  void invert() override {
    Chunked::invert();
    T_.transposeInPlace();
  }
};

/// I - A + A^2 - ... with `terms` powers of A.
template <int terms>
struct NeumannTerms : Chunked {
  using Chunked::Chunked;
  void invert() override {
    Grid power = T_ = Grid::Identity(L_, L_);
    for (int i = 0; i < terms; ++i) {
      power = -(power * A_);
      T_ += power;
    }
  }
};

template <Format format>
struct LowInverse : Chunked {
  using Chunked::Chunked;
  void invert() override {
    const Grid A = rounded(A_, format);
    T_ = Grid::Identity(L_, L_);
    for (Index i = 1; i < L_; ++i)
      T_.row(i).head(i) = rounded(-A.row(i).head(i) * T_.topLeftCorner(i, i), format);
  }
};

struct WriteBeforeErase : Recurrent {
  using Recurrent::Recurrent;
  void correct() override { u_ = beta_ * v_.transpose(); }
  void write() override {
    S_ += k_ * u_;
    S_ -= beta_ * k_ * recall(k_);
  }
};

/// The operators of a chunk are composed from the last to the first. This happens in float64, so that a chunk
/// rounds the state once, as the form promises.
struct ReversedComposition : Chunked {
  using Chunked::Chunked;
  void update() override {
    Matrix<double> S = S_.cast<double>();
    for (Index i = L_; i-- > 0;) {
      if (decays()) S *= std::exp(static_cast<double>(g_(i)));
      const Matrix<double> k = K_.row(i).cast<double>();
      Matrix<double> u = V_.row(i).cast<double>();
      if (system_.delta) u = static_cast<double>(beta_(i)) * (u - k * S);
      S += k.transpose() * u;
    }
    S_ = S.cast<float>();
  }
};

struct StrictScores : Chunked {
  using Chunked::Chunked;
  void scores() override {
    Chunked::scores();
    P_.diagonal().setZero();
  }
};
struct ReadBeforeWrite : Recurrent {
  using Recurrent::Recurrent;
  void write() override { Recurrent::read(); }
  void read() override { Recurrent::write(); }
};
struct OneTokenAhead : Chunked {
  using Chunked::Chunked;
  void scores() override {
    const Grid all = multiply(rounded(Q_, contract_.qk), rounded(K_, contract_.qk).transpose());
    P_ = all.cwiseProduct(E_);
    P_.triangularView<Eigen::StrictlyUpper>().setZero();
    for (Index i = 0; i + 1 < L_; ++i) P_(i, i + 1) = all(i, i + 1);
  }
};
struct TriangleWithDiagonal : Chunked {
  using Chunked::Chunked;
  void invert() override {
    for (Index i = 0; i < L_; ++i) A_(i, i) = beta_(i) * K_.row(i).squaredNorm();
    T_ = Grid::Zero(L_, L_);
    for (Index i = 0; i < L_; ++i) {
      T_(i, i) = 1.0F;
      if (i > 0) T_.row(i).head(i) = -A_.row(i).head(i) * T_.topLeftCorner(i, i);
      T_.row(i) /= 1.0F + A_(i, i);
    }
  }
};

template <class Base>
struct NoBeta : Base {
  using Base::Base;
  float strength(float) const override { return 1.0F; }
};
template <class Base>
struct BetaClamped : Base {
  using Base::Base;
  float strength(float beta) const override { return std::min(beta, 1.0F); }
};
template <class Base>
struct BetaOfTheTokenBefore : Base {
  using Base::Base;
  float given_strength(Index t) const override { return t == 0 ? 1.0F : Base::given_strength(t - 1); }
};
struct BetaTwiceOnValueChunked : Chunked {
  using Chunked::Chunked;
  float value_factor(Index i) const override { return beta_(i) * beta_(i); }
};
struct BetaTwiceOnValueRecurrent : Recurrent {
  using Recurrent::Recurrent;
  void correct() override { u_ = beta_ * (beta_ * v_.transpose() - recall(k_)); }
};

struct ReadBeforeDecay : Recurrent {
  using Recurrent::Recurrent;
  void decay() override {
    Recurrent::read();
    Recurrent::decay();
  }
  void read() override {}
};

/// The last token is read, but neither written nor decayed.
struct LastTokenLeftOut : Recurrent {
  using Recurrent::Recurrent;
  void load() override {
    Recurrent::load();
    if (t_ + 1 < head_.tokens) return;
    alpha_ = 1.0F;
    k_.setZero();
    v_.setZero();
  }
};

template <class Base>
struct QueriesForKeys : Base {
  using Base::Base;
  cpu::Head locate(std::int64_t n, std::int64_t h) const override {
    cpu::Head head = Base::locate(n, h);
    std::swap(head.q, head.k);
    return head;
  }
};

}  // namespace

std::vector<Mutant> delta_mutants() {
  std::vector<Mutant> out;
  add<StaleRowsInTail>(
      out, {"M07", "stale_rows_in_tail", "the last chunk runs over C rows, not over its own"}, kAll);
  add<NoDeltaTermChunked>(out, {"M13", "no_delta_term", "S <- a S + beta k v^T"}, kDeltas);
  add<NoDeltaTermRecurrent>(out, {"M13", "no_delta_term", "S <- a S + beta k v^T"}, kDeltas);
  add<ErrorBeforeDecayChunked>(
      out, {"M17", "error_before_decay", "v - S^T k from the state before the decay"}, kGatedDelta);
  add<ErrorBeforeDecayRecurrent>(
      out, {"M17", "error_before_decay", "v - S^T k from the state before the decay"}, kGatedDelta);
  add<DeltaOnlyWithGateChunked>(
      out, {"M18", "delta_only_with_gate", "the delta term is left out where no gate is given"}, kDelta);
  add<DeltaOnlyWithGateRecurrent>(
      out, {"M18", "delta_only_with_gate", "the delta term is left out where no gate is given"}, kDelta);
  add<BetaNotOnValueChunked>(out, {"M19", "beta_not_on_value", "S (I - beta k k^T) + v k^T"}, kDeltas);
  add<BetaNotOnValueRecurrent>(out, {"M19", "beta_not_on_value", "S (I - beta k k^T) + v k^T"}, kDeltas);
  add_both<BetaTwice>(out, {"M20", "beta_twice", "beta on k and on v"}, kDeltas);
  add<BetaNotOnErasedChunked>(out, {"M20", "beta_not_on_erased", "S (I - k k^T) + beta v k^T"}, kDeltas);
  add<BetaNotOnErasedRecurrent>(out, {"M20", "beta_not_on_erased", "S (I - k k^T) + beta v k^T"}, kDeltas);
  add<BetaOnlyInTriangle>(out, {"M20", "beta_not_on_key", "W = T e^G K, without beta"}, kDeltas);
  add<TriangleWithoutBeta>(out, {"M20", "triangle_without_beta", "A = K K^T o E, without beta"}, kDeltas);
  add<InverseTransposed>(out, {"M42", "inverse_transposed", "the inverse of the triangle is transposed"},
                         kDeltas);
  add<NeumannTerms<1>>(out, {"M69", "neumann_1", "I - A for the inverse"}, kDeltas);
  add<NeumannTerms<3>>(out, {"M69", "neumann_3", "three terms of the series for the inverse"}, kDeltas);
  add<NeumannTerms<8>>(out, {"M69", "neumann_8", "eight terms of the series for the inverse"}, kDeltas);
  add<LowInverse<Format::bf16>>(out, {"M69", "bf16_inverse", "the triangle is inverted in bf16"}, kDeltas);
  add<LowInverse<Format::bf16>>(
      out,
      {"M69", "bf16_inverse_in_bf16",
       "the triangle is inverted in bf16, by a kernel that promises bf16 alone", kOnlyBf16},
      kDeltas);
  add<LowInverse<Format::fp16>>(
      out,
      {"M69", "fp16_inverse_in_bf16",
       "the triangle is inverted in fp16, by a kernel that promises bf16 alone", kOnlyBf16},
      kDeltas);
  add<WriteBeforeErase>(out, {"M89", "write_before_erase", "the rank-one write comes before the erasure"},
                        kDeltas);
  add<ReversedComposition>(
      out, {"M89", "reversed_composition", "a chunk's operators are composed from last to first"}, kAll);
  add<StrictScores>(out, {"M90", "strict_mask", "j < i: a token does not see itself"}, kAll);
  add<ReadBeforeWrite>(out, {"M90", "strict_mask", "the output is read before the token is written"}, kAll);
  add<OneTokenAhead>(out, {"M90", "one_token_ahead", "j <= i + 1: a token sees the next one"}, kAll);
  add<TriangleWithDiagonal>(out, {"M90", "triangle_with_diagonal", "the triangle is not strict"}, kDeltas);
  add_both<NoBeta>(out, {"F", "no_beta", "beta is left out"}, kDeltas);
  add_both<BetaClamped>(out, {"F", "beta_clamped", "beta above 1 is 1"}, kDeltas);
  add_both<BetaOfTheTokenBefore>(out, {"F", "beta_of_the_token_before", "beta is that of the token before"},
                                 kDeltas);
  add<BetaTwiceOnValueChunked>(out, {"F", "beta_twice_on_value", "beta multiplies v twice and the rest once"},
                               kDeltas);
  add<BetaTwiceOnValueRecurrent>(
      out, {"F", "beta_twice_on_value", "beta multiplies v twice and the rest once"}, kDeltas);
  add<ReadBeforeDecay>(
      out, {"F", "read_before_decay", "the output is read from the state that the token found"}, kAll);
  add<LastTokenLeftOut>(out, {"F", "last_token_left_out", "the last token is read and not written"}, kAll);
  add_both<QueriesForKeys>(out, {"F", "q_and_k_exchanged", "q is taken for k and k for q"}, kAll);
  for (Mutant& m : out) {
    // S <- S + k v^T: rank-one writes are added, and sums of matrices commute. In float64, rounded once per
    // chunk, they differ from the form's by less than its own roundings. (Added token by token to an fp32
    // state they differ by more: that is 64 roundings per chunk, which T = 65537 shows with the head gate at
    // a ratio of 1.9.)
    if (m.name == "reversed_composition.linear_attention.chunked")
      m.equivalent = "without decay and delta rule the operators commute";
  }
  return out;
}

}  // namespace samestate::mutants

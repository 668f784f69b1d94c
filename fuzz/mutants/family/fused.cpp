#include "fuzz/mutants/family/fused.h"

#include <algorithm>
#include <cmath>

#include "optimized/cpu/rounding.h"

namespace samestate::mutants {
namespace {

/// An operand of a merge: rounded to tf32 by one integer addition, with ties away from zero.
Grid merge_operand(const Grid& x, Format format) {
  if (format != Format::tf32) return rounded(x, format);
  return x.unaryExpr([](float v) { return cpu::to_tf32_away(v); });
}

}  // namespace

bool is_fused(const Contract& c) {
  return c.residual != Format::none && c.inverse == Inverse::block8 && c.scan == Scan::tree &&
         c.norm == Norm::factor && !c.beta_in_T && c.scale_in_P && c.k_decayed == Format::none &&
         c.q_decayed == Format::none;
}

void FusedRecurrent::decay() {
  old_ = recall(q_);
  memory_ = recall(k_);
  Recurrent::decay();
}

void FusedRecurrent::correct() {
  u_ = v_.transpose();
  if (system_.delta) u_ = beta_ * (u_ - alpha_ * memory_);
}

void FusedRecurrent::read() {
  o_ = alpha_ * old_ + k_.dot(q_) * u_;
  readout(o_);
}

void FusedChunked::load() {
  Chunked::load();
  q_factor_ = Column::Ones(L_);
  k_factor_ = Column::Ones(L_);
  if (!arguments_.l2norm) return;
  const auto raw = [&](const cpu::Rows<const float>& x, Index i, Grid& to, Column& factor) {
    Column row(head_.dk);
    x.load(first_ + i, 0, head_.dk, row.data());
    to.row(i) = row.transpose();
    factor(i) = 1.0F / std::sqrt(row.squaredNorm() + 1e-6F);
  };
  for (Index i = 0; i < L_; ++i) {
    raw(head_.q, i, Q_, q_factor_);
    raw(head_.k, i, K_, k_factor_);
  }
}

void FusedChunked::cumulate() {
  G_ = g_;
  for (Index distance = 1; distance < L_; distance *= 2) {
    for (Index i = L_ - 1; i >= distance; --i) G_(i) += G_(i - distance);
  }
}

void FusedChunked::triangle() {
  Chunked::triangle();
  for (Index i = 0; i < L_; ++i) {
    for (Index j = 0; j < i; ++j) A_(i, j) *= row_factor(i) * column_factor(j);
  }
}

Grid FusedChunked::merged(const Grid& product, Index) const { return -product; }

void FusedChunked::invert() {
  T_ = Grid::Identity(L_, L_);
  invert(0, L_);
}

void FusedChunked::invert(Index first, Index size) {
  if (size <= 8) {
    for (Index i = 1; i < size; ++i) {
      const auto block = T_.block(first, first, i, i);
      T_.block(first + i, first, 1, i) = (-A_.block(first + i, first, 1, i) * block).eval();
    }
    return;
  }
  Index half = 8;
  while (2 * half < size) half *= 2;
  const Index rest = size - half;
  const Index middle = first + half;
  invert(first, half);
  invert(middle, rest);
  const auto operand = [&](const Grid& x) { return merge_operand(x, contract_.inverse_operand); };
  const Grid left =
      multiply(operand(T_.block(middle, middle, rest, rest)), operand(A_.block(middle, first, rest, half)));
  T_.block(middle, first, rest, half) =
      merged(multiply(operand(left), operand(T_.block(first, first, half, half))), size);
}

void FusedChunked::correct() {
  Grid R = multiply(rounded(K_, contract_.qk), operand_);
  for (Index i = 0; i < L_; ++i) {
    R.row(i) = value_factor(i) * V_.row(i) - key_factor(i) * exp_G_(i) * residual_factor(i) * R.row(i);
  }
  V_new_ = multiply(T_, rounded(R, contract_.residual));
}

void FusedChunked::scores() {
  Chunked::scores();
  for (Index i = 0; i < L_; ++i) {
    for (Index j = 0; j <= i; ++j) P_(i, j) *= score_factor(i) * column_factor(j) * scale();
  }
}

void FusedChunked::outputs() {
  O_ = multiply(rounded(Q_, contract_.qk), operand_);
  for (Index i = 0; i < L_; ++i) O_.row(i) *= exp_G_(i) * read_factor(i) * scale();
  O_ += multiply(rounded(P_, contract_.P), rounded(V_new_, contract_.v_new));
}

void FusedChunked::update() {
  Grid decayed = V_new_;
  for (Index i = 0; i < L_; ++i) decayed.row(i) *= to_end_(i) * write_factor(i);
  S_ *= carried_;
  S_ += multiply(rounded(K_, contract_.qk).transpose(), rounded(decayed, contract_.v_decayed));
}

}  // namespace samestate::mutants

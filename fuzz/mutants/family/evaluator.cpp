#include "fuzz/mutants/family/evaluator.h"

#include <algorithm>
#include <cmath>

#include "optimized/cpu/rounding.h"

namespace samestate::mutants {

Grid rounded(Grid x, Format format) {
  if (!cpu::keeps_fp32(format)) cpu::round_values(x.data(), x.data(), x.size(), format);
  return x;
}

Evaluator::Evaluator(const cpu::System& system, const Arguments& arguments, const Contract& contract)
    : system_(system), arguments_(arguments), contract_(contract), sizes_(cpu::checked_sizes(arguments)) {}

bool Evaluator::promises() const {
  const Contract& c = contract_;
  return c.inverse == Inverse::substitution && c.scan == Scan::sequential && !c.beta_in_T &&
         c.residual == Format::none && !c.scale_in_P && c.norm == Norm::operand && !c.reads_old_state &&
         c.beta_k == Format::none && c.k_decayed == Format::none && c.q_decayed == Format::none;
}

Outcome Evaluator::run() {
  if (!promises()) return {Outcome::Kind::unsupported, "contract " + contract_.name};
  if (std::string reason = cpu::unsupported_reason(system_, arguments_, contract_); !reason.empty()) {
    return {Outcome::Kind::unsupported, std::move(reason)};
  }
  outside();
  for (n_ = 0; n_ < sizes_.sequences; ++n_) {
    for (h_ = 0; h_ < sizes_.value_heads; ++h_) {
      head_ = locate(n_, h_);
      if (computes(n_, h_)) {
        evaluate();
        continue;
      }
      for (Index t = 0; t < head_.tokens; ++t) store_row(t, Grid::Zero(1, head_.dv));
      store_state(Grid::Zero(head_.dk, head_.dv));
    }
  }
  return {};
}

bool Evaluator::computes(std::int64_t, std::int64_t) const { return true; }

cpu::Head Evaluator::locate(std::int64_t n, std::int64_t h) const {
  return cpu::head_of(arguments_, sizes_, n, h);
}

Grid Evaluator::initial_state() {
  Grid S = Grid::Zero(head_.dk, head_.dv);
  if (head_.initial_state.data == nullptr) return S;
  for (Index l = 0; l < head_.dk; ++l) head_.initial_state.load(l, 0, head_.dv, S.row(l).data());
  return S;
}

void Evaluator::store_state(const Grid& S) {
  if (head_.final_state.data == nullptr) return;
  for (Index l = 0; l < head_.dk; ++l) head_.final_state.store(l, 0, head_.dv, S.row(l).data());
}

void Evaluator::store_row(Index t, const Grid& o) { head_.o.store(t, 0, head_.dv, o.data()); }

void Evaluator::normalise(Column& x) const { x *= 1.0F / std::sqrt(x.squaredNorm() + 1e-6F); }

float Evaluator::exponential(float x) const { return cpu::exponential(x, contract_.exponential); }

Column Evaluator::key(const cpu::Rows<const float>& x, Index t) const {
  Column row(head_.dk);
  x.load(t, 0, head_.dk, row.data());
  if (arguments_.l2norm) normalise(row);
  return row;
}

Column Evaluator::value(Index t) const {
  Column row(head_.dv);
  head_.v.load(t, 0, head_.dv, row.data());
  return row;
}

void Recurrent::evaluate() {
  S_ = initial_state();
  for (t_ = 0; t_ < head_.tokens; ++t_) {
    load();
    decay();
    correct();
    write();
    read();
    store_row(t_, rounded(o_, contract_.output));
    S_ = settled(S_);
  }
  store_state(S_);
}

void Recurrent::load() {
  q_ = rounded(key(head_.q, t_), contract_.qk);
  k_ = rounded(key(head_.k, t_), contract_.qk);
  v_ = value(t_);
  alpha_ = head_.g.data ? exponential(gate(given_gate(t_))) : 1.0F;
  beta_ = head_.beta.data ? strength(given_strength(t_)) : 1.0F;
}

void Recurrent::decay() {
  if (decays()) S_ *= alpha_;
}

void Recurrent::correct() {
  u_ = v_.transpose();
  if (system_.delta) u_ = beta_ * (u_ - recall(k_));
}

void Recurrent::write() { S_ += k_ * u_; }

void Recurrent::read() {
  o_ = recall(q_);
  readout(o_);
}

void Chunked::evaluate() {
  S_ = initial_state();
  for (first_ = 0; first_ < head_.tokens; first_ += arguments_.chunk) {
    valid_ = L_ = std::min<Index>(arguments_.chunk, head_.tokens - first_);
    load();
    factors();
    operand_ = rounded(S_, contract_.state_operand);
    if (system_.delta) {
      triangle();
      invert();
      T_ = rounded(T_, contract_.T);
      correct();
    } else {
      V_new_ = V_;
    }
    scores();
    outputs();
    store_outputs();
    update();
    S_ = settled(S_);
  }
  store_state(S_);
}

void Chunked::load() {
  // A normalised key is rounded before any use; a key given as it is, only as an operand.
  const Format format = arguments_.l2norm ? contract_.qk : Format::fp32;
  Q_.resize(L_, head_.dk);
  K_.resize(L_, head_.dk);
  V_.resize(L_, head_.dv);
  g_ = Column::Zero(L_);
  beta_ = Column::Ones(L_);
  for (Index i = 0; i < L_; ++i) {
    Q_.row(i) = rounded(key(head_.q, first_ + i), format).transpose();
    K_.row(i) = rounded(key(head_.k, first_ + i), format).transpose();
    V_.row(i) = value(first_ + i).transpose();
    if (head_.g.data) g_(i) = gate(given_gate(first_ + i));
    if (head_.beta.data) beta_(i) = strength(given_strength(first_ + i));
  }
}

void Chunked::pad(Index rows) {
  const Index more = rows - L_;
  if (more <= 0) return;
  for (Grid* x : {&Q_, &K_, &V_}) {
    x->conservativeResize(rows, x->cols());
    x->bottomRows(more).setZero();
  }
  for (Column* x : {&g_, &beta_}) {
    x->conservativeResize(rows);
    x->tail(more).setZero();
  }
  L_ = rows;
}

void Chunked::cumulate() {
  G_ = g_;
  for (Index i = 1; i < L_; ++i) G_(i) += G_(i - 1);
}

float Chunked::factor(Index i, Index j) const { return exponential(G_(i) - G_(j)); }

void Chunked::factors() {
  E_ = Grid::Zero(L_, L_);
  exp_G_ = Column::Ones(L_);
  to_end_ = Column::Ones(L_);
  carried_ = 1.0F;
  if (!decays()) {
    E_.triangularView<Eigen::Lower>().setOnes();
    return;
  }
  cumulate();
  const Index end = end_row();
  for (Index i = 0; i < L_; ++i) {
    for (Index j = 0; j <= i; ++j) E_(i, j) = factor(i, j);
    exp_G_(i) = exponential(G_(i));
    to_end_(i) = exponential(G_(end) - G_(i));
  }
  carried_ = exponential(G_(end));
}

void Chunked::triangle() {
  const Grid operand = rounded(K_, contract_.qk);
  A_ = multiply(operand, operand.transpose()).cwiseProduct(E_);
  A_ = beta_.asDiagonal() * A_;
  A_.triangularView<Eigen::Upper>().setZero();
  A_ = rounded(A_, contract_.A);
}

void Chunked::invert() {
  T_ = Grid::Identity(L_, L_);
  for (Index i = 1; i < L_; ++i) T_.row(i).head(i) = -A_.row(i).head(i) * T_.topLeftCorner(i, i);
}

void Chunked::correct() {
  Grid v = V_;
  Grid k = K_;
  for (Index i = 0; i < L_; ++i) {
    v.row(i) *= value_factor(i);
    k.row(i) *= key_factor(i) * exp_G_(i);
  }
  V_new_ = rounded(multiply(T_, rounded(v, contract_.beta_v)), contract_.U);
  V_new_ -= multiply(rounded(multiply(T_, rounded(k, contract_.beta_exp_k)), contract_.W), operand_);
}

void Chunked::scores() {
  P_ = multiply(rounded(Q_, contract_.qk), rounded(K_, contract_.qk).transpose()).cwiseProduct(E_);
  P_.triangularView<Eigen::StrictlyUpper>().setZero();
}

void Chunked::outputs() {
  O_ = exp_G_.asDiagonal() * multiply(rounded(Q_, contract_.qk), operand_);
  O_ += multiply(rounded(P_, contract_.P), rounded(V_new_, contract_.v_new));
}

void Chunked::store_outputs() {
  readout(O_);
  O_ = rounded(O_, contract_.output);
  for (Index i = 0; i < valid_; ++i) store_row(first_ + i, O_.row(i));
}

void Chunked::update() {
  const Grid decayed = to_end_.asDiagonal() * V_new_;
  S_ *= carried_;
  S_ += multiply(rounded(K_, contract_.qk).transpose(), rounded(decayed, contract_.v_decayed));
}

}  // namespace samestate::mutants

#include "optimized/cpu/backward/chunked.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "optimized/cpu/backward/l2norm_back.h"
#include "optimized/cpu/backward/row_sums.h"
#include "optimized/cpu/chunked.h"
#include "optimized/cpu/chunked_head.h"

namespace samestate::cpu {
namespace {

/// Copies a [dk, dv] state; zeros if it is absent.
void load_state(const Rows<const float>& from, std::int64_t dk, std::int64_t dv, Block& to) {
  to.resize(dk, dv);
  std::fill(to.values.begin(), to.values.end(), 0.0F);
  if (!from.data) return;
  for (std::int64_t l = 0; l < dk; ++l) from.load(l, 0, dv, to.row(l));
}

void zero(const Block& like, Block& x) {
  x.resize(like.rows, like.columns);
  std::fill(x.values.begin(), x.values.end(), 0.0F);
}

/// to <- x, rounded to `format`.
void copy_rounded(const Block& x, Format format, Block& to) {
  to.resize(x.rows, x.columns);
  round_values(x.values.data(), to.values.data(), x.size(), format);
}

}  // namespace

ChunkedBackward::ChunkedBackward(const System& system, const BackwardArguments& arguments,
                                 const Contract& contract)
    : system_(system), arguments_(arguments.forward), contract_(contract), unit_(MatrixUnit::of(contract)) {}

Format ChunkedBackward::format_at(BackwardPoint point) const {
  switch (point) {
    case BackwardPoint::dG_last:
    case BackwardPoint::dG_of_A:
    case BackwardPoint::dG:
    case BackwardPoint::dg:
    case BackwardPoint::dbeta:
    case BackwardPoint::d_initial_state:
      return Format::fp32;
    default:
      break;
  }
  const bool sixteen = contract_.input == Format::bf16 || contract_.input == Format::fp16;
  return sixteen ? contract_.input : Format::fp32;
}

void ChunkedBackward::multiply(const Block& a, const Block& b, Block& c, BackwardPoint) const {
  product(unit_, a, b, c);
  // An infinity times the padding of b, which is zero, is NaN, and sums along the rows of c would see it.
  for (std::int64_t i = 0; i < c.rows; ++i) std::fill(c.row(i) + c.columns, c.row(i) + c.stride, 0.0F);
}

void ChunkedBackward::multiply_by_transposed(const Block& a, const Block& b, Block& c, BackwardPoint point) {
  transpose(b, transposed_);
  multiply(a, transposed_, c, point);
}

void ChunkedBackward::multiply_transposed(const Block& a, const Block& b, Block& c, BackwardPoint point) {
  transpose(a, transposed_);
  multiply(transposed_, b, c, point);
}

void ChunkedBackward::store(Block& x, BackwardPoint point) const { round_in_place(x, format_at(point)); }

void ChunkedBackward::run(const BackwardGroup& group) {
  const Head& first = group.heads.front().forward;
  for (Block* sum : {&dQ_sum_, &dK_sum_, &dK_correction_sum_}) {
    sum->resize(first.tokens, first.dk);
    std::fill(sum->values.begin(), sum->values.end(), 0.0F);
  }
  for (const BackwardHead& head : group.heads) run_head(head);
  finish_keys(group);
}

void ChunkedBackward::run_head(const BackwardHead& head) {
  const Head& x = head.forward;
  load_state(x.initial_state, x.dk, x.dv, S_);
  load_final_cotangent(head);
  const auto begin_from = [&](const float* before) { std::copy_n(before, S_.size(), S_.values.data()); };
  sweep_.run((x.tokens + arguments_.chunk - 1) / arguments_.chunk, S_.size(), S_.values.data(),
             [&](std::int64_t chunk, const float* before, float* after) {
               begin_from(before);
               forward_chunk(head, chunk);
               next_state();
               std::copy_n(S_.values.data(), S_.size(), after);
             },
             [&](std::int64_t chunk, const float* before) {
               begin_from(before);
               reverse_chunk(head, chunk);
             });
  write_initial_cotangent(head);
}

void ChunkedBackward::load_final_cotangent(const BackwardHead& head) {
  load_state(head.d_final_state, head.forward.dk, head.forward.dv, D_);
}

void ChunkedBackward::write_initial_cotangent(const BackwardHead& head) {
  if (!head.d_initial_state.data) return;
  store(D_, BackwardPoint::d_initial_state);
  for (std::int64_t l = 0; l < D_.rows; ++l) head.d_initial_state.store(l, 0, D_.columns, D_.row(l));
}

void ChunkedBackward::reverse_chunk(const BackwardHead& head, std::int64_t chunk) {
  forward_chunk(head, chunk);
  const std::int64_t first = chunk * arguments_.chunk;
  load_cotangent(head, first);
  value_cotangents();
  score_cotangents();
  query_gradient();
  key_gradient();
  if (system_.decay) {
    dG_.assign(static_cast<std::size_t>(L_), 0.0F);
    for (std::int64_t i = 0; i < L_; ++i) dG_[i] = gate_of_query(i) - gate_of_key(i);
    dG_[L_ - 1] += gate_of_last_token();
  }
  if (system_.delta) {
    inverse_cotangent();
    correction_products();
    key_correction();
    if (system_.decay) {
      for (std::int64_t i = 0; i < L_; ++i) dG_[i] += gate_through_W(i);
      gate_through_A();
    }
  }
  value_gradient();
  state_cotangent();
  write_values(head, first);
  store(dQ_, BackwardPoint::dq_head);
  store(dK_, BackwardPoint::dk_head);
  add_to_group(dQ_, first, dQ_sum_);
  add_to_group(dK_, first, dK_sum_);
  if (system_.delta) add_to_group(dK_correction_, first, dK_correction_sum_);
}

void ChunkedBackward::forward_chunk(const BackwardHead& head, std::int64_t chunk) {
  const std::int64_t first = chunk * arguments_.chunk;
  load_chunk(head, first, std::min(arguments_.chunk, head.forward.tokens - first));
  decays();
  copy_rounded(S_, format_at(BackwardPoint::state_operand), S_operand_);
  if (system_.delta) {
    inverse();
    corrected_values();
  } else {
    written_ = V_;
    copy_rounded(written_, format_at(BackwardPoint::v_new), N_);
  }
}

void ChunkedBackward::load_chunk(const BackwardHead& head, std::int64_t first, std::int64_t length) {
  const Head& x = head.forward;
  const auto size = static_cast<std::size_t>(length);
  L_ = length;
  Q_.resize(length, x.dk);
  K_.resize(length, x.dk);
  V_.resize(length, x.dv);
  G_.assign(size, 0.0F);
  beta_.assign(size, 1.0F);
  for (std::int64_t i = 0; i < length; ++i) {
    load_key(x.q, first + i, x.dk, arguments_.l2norm, Format::fp32, Q_.row(i));
    load_key(x.k, first + i, x.dk, arguments_.l2norm, Format::fp32, K_.row(i));
    x.v.load(first + i, 0, x.dv, V_.row(i));
    if (x.g.data) G_[i] = clamped_decay(*x.g.row(first + i));
    if (x.beta.data) beta_[i] = *x.beta.row(first + i);
  }
}

void ChunkedBackward::decays() {
  cumulative_sum(G_, contract_.scan);
  E_.resize(L_, L_);
  from_start_.resize(static_cast<std::size_t>(L_));
  to_end_.resize(static_cast<std::size_t>(L_));
  decayed_beta_.resize(static_cast<std::size_t>(L_));
  for (std::int64_t i = 0; i < L_; ++i) {
    // Above the diagonal the differences are positive, and e to them may overflow (EQUATIONS 8.3).
    for (std::int64_t j = 0; j <= i; ++j)
      E_.row(i)[j] = arguments_.g.present() ? std::exp(G_[i] - G_[j]) : 1.0F;
    from_start_[i] = std::exp(G_[i]);
    decayed_beta_[i] = beta_[i] * from_start_[i];
  }
  std::copy_n(E_.row(L_ - 1), L_, to_end_.begin());
}

void ChunkedBackward::mask(Block& x, std::int64_t diagonal) const {
  for (std::int64_t i = 0; i < L_; ++i) {
    float* const row = x.row(i);
    const std::int64_t kept = i + diagonal;
    for (std::int64_t j = 0; j < kept; ++j) row[j] *= E_.row(i)[j];
    std::fill(row + kept, row + x.stride, 0.0F);
  }
}

void ChunkedBackward::inverse() {
  multiply_by_transposed(K_, K_, KK_, BackwardPoint::key_products);
  Block& A = product_;
  scale_rows(beta_.data(), KK_, A);
  mask(A, 0);
  T_.resize(L_, L_);
  invert_by_substitution(A, T_, 0, L_);
  store(T_, BackwardPoint::T);
}

void ChunkedBackward::corrected_values() {
  scale_rows(beta_.data(), V_, beta_v_);
  store(beta_v_, BackwardPoint::beta_v);
  scale_rows(decayed_beta_.data(), K_, beta_k_);
  store(beta_k_, BackwardPoint::beta_k);
  multiply(T_, beta_v_, written_, BackwardPoint::U);
  store(written_, BackwardPoint::U);
  multiply(T_, beta_k_, W_, BackwardPoint::W);
  store(W_, BackwardPoint::W);
  multiply(W_, S_operand_, product_, BackwardPoint::read_by_W);
  for (std::int64_t i = 0; i < written_.size(); ++i) written_.values[i] -= product_.values[i];
  copy_rounded(written_, format_at(BackwardPoint::v_new), N_);
}

void ChunkedBackward::next_state() {
  scale_rows(to_end_.data(), written_, operand_);
  store(operand_, BackwardPoint::v_decayed);
  multiply_transposed(K_, operand_, product_, BackwardPoint::state);
  const float carried = from_start_[L_ - 1];
  for (std::int64_t i = 0; i < S_.size(); ++i)
    S_.values[i] = std::fma(carried, S_.values[i], product_.values[i]);
}

void ChunkedBackward::load_cotangent(const BackwardHead& head, std::int64_t first) {
  zero(V_, dO_);
  if (!head.d_o.data) return;
  for (std::int64_t i = 0; i < L_; ++i) head.d_o.load(first + i, 0, dO_.columns, dO_.row(i));
}

void ChunkedBackward::value_cotangents() {
  Block& P = operand_;
  multiply_by_transposed(Q_, K_, P, BackwardPoint::scores);
  mask(P, 1);
  scale_block(arguments_.scale, P);
  store(P, BackwardPoint::P);
  Block& local = product_;
  multiply_transposed(P, dO_, local, BackwardPoint::dv_local);
  store(local, BackwardPoint::dv_local);
  copy_rounded(D_, format_at(BackwardPoint::dh_operand), D_operand_);
  multiply(K_, D_operand_, dN_, BackwardPoint::dv_carried);
  for (std::int64_t i = 0; i < L_; ++i) {
    for (std::int64_t c = 0; c < dN_.stride; ++c)
      dN_.row(i)[c] = std::fma(to_end_[i], dN_.row(i)[c], local.row(i)[c]);
  }
  store(dN_, BackwardPoint::dv_new);
}

void ChunkedBackward::score_cotangents() {
  multiply_by_transposed(dO_, N_, dP_, BackwardPoint::dS_score);
  mask(dP_, 1);
  scale_block(arguments_.scale, dP_);
  store(dP_, BackwardPoint::dS_score);
}

void ChunkedBackward::query_gradient() {
  multiply_by_transposed(dO_, S_operand_, dQ_, BackwardPoint::dq_of_state);
  multiply(dP_, K_, product_, BackwardPoint::dq_of_scores);
  for (std::int64_t i = 0; i < L_; ++i) {
    const float factor = arguments_.scale * from_start_[i];
    for (std::int64_t l = 0; l < dQ_.stride; ++l)
      dQ_.row(i)[l] = std::fma(factor, dQ_.row(i)[l], product_.row(i)[l]);
  }
}

void ChunkedBackward::key_gradient() {
  multiply_by_transposed(N_, D_operand_, dK_of_state_, BackwardPoint::dk_of_state);
  scale_rows(to_end_.data(), dK_of_state_, dK_of_state_);
  multiply_transposed(dP_, Q_, dK_, BackwardPoint::dk_of_scores);
  add_block(dK_of_state_, dK_);
}

void ChunkedBackward::state_cotangent() {
  const float carried = from_start_[L_ - 1];
  scale_rows(from_start_.data(), Q_, operand_);
  multiply_transposed(operand_, dO_, product_, BackwardPoint::q_decayed);
  for (std::int64_t i = 0; i < D_.size(); ++i)
    D_.values[i] = std::fma(carried, D_.values[i], arguments_.scale * product_.values[i]);
  if (!system_.delta) return;
  multiply_transposed(W_, dN_, product_, BackwardPoint::dh_of_W);
  for (std::int64_t i = 0; i < D_.size(); ++i) D_.values[i] -= product_.values[i];
}

void ChunkedBackward::inverse_cotangent() {
  multiply_by_transposed(dN_, S_operand_, dW_, BackwardPoint::dw);
  scale_block(-1.0F, dW_);
  store(dW_, BackwardPoint::dw);

  Block& dT = operand_;
  multiply_by_transposed(dN_, beta_v_, dT, BackwardPoint::dT);
  multiply_by_transposed(dW_, beta_k_, product_, BackwardPoint::dT);
  add_block(product_, dT);
  for (std::int64_t i = 0; i < L_; ++i) std::fill(dT.row(i) + i, dT.row(i) + dT.stride, 0.0F);
  store(dT, BackwardPoint::dT);
  Block& dTT = product_;
  multiply_by_transposed(dT, T_, dTT, BackwardPoint::dT_T);
  store(dTT, BackwardPoint::dT_T);
  multiply_transposed(T_, dTT, dM_, BackwardPoint::dA);
  scale_block(-1.0F, dM_);
  mask(dM_, 0);
  store(dM_, BackwardPoint::dA);
}

void ChunkedBackward::correction_products() {
  multiply_transposed(T_, dN_, of_U_, BackwardPoint::dv_of_T);
  multiply_transposed(T_, dW_, of_W_, BackwardPoint::dk_of_T);
  multiply(dM_, K_, of_A_, BackwardPoint::dk_of_A);
}

void ChunkedBackward::value_gradient() {
  if (system_.delta) {
    scale_rows(beta_.data(), of_U_, dV_);
  } else {
    dV_ = dN_;
  }
  store(dV_, BackwardPoint::dv);
}

void ChunkedBackward::key_correction() {
  zero(K_, dK_correction_);
  key_through_W();
  store(dK_correction_, BackwardPoint::dk_correction);
  zero(K_, dK_through_A_);
  key_through_A_rows();
  key_through_A_columns();
  add_block(dK_through_A_, dK_correction_);
  store(dK_correction_, BackwardPoint::dk_correction);
}

void ChunkedBackward::key_through_W() {
  for (std::int64_t i = 0; i < L_; ++i)
    add_row(decayed_beta_[i], of_W_.row(i), dK_correction_.row(i), of_W_.stride);
}

void ChunkedBackward::key_through_A_rows() {
  for (std::int64_t i = 0; i < L_; ++i) add_row(beta_[i], of_A_.row(i), dK_through_A_.row(i), of_A_.stride);
}

void ChunkedBackward::key_through_A_columns() {
  scale_rows(beta_.data(), K_, operand_);
  store(operand_, BackwardPoint::beta_key);
  multiply_transposed(dM_, operand_, product_, BackwardPoint::dk_of_A_transposed);
  add_block(product_, dK_through_A_);
}

float ChunkedBackward::beta_through_U(std::int64_t i) const {
  return dot_rows(of_U_.row(i), V_.row(i), V_.stride);
}

float ChunkedBackward::beta_through_W(std::int64_t i) const {
  return from_start_[i] * dot_rows(of_W_.row(i), K_.row(i), K_.stride);
}

float ChunkedBackward::beta_through_A(std::int64_t i) const {
  return dot_rows(of_A_.row(i), K_.row(i), K_.stride);
}

float ChunkedBackward::gate_of_query(std::int64_t i) const {
  return dot_rows(Q_.row(i), dQ_.row(i), Q_.stride);
}

float ChunkedBackward::gate_of_key(std::int64_t i) const {
  return dot_rows(K_.row(i), dK_.row(i), K_.stride);
}

float ChunkedBackward::gate_of_last_token() {
  float carried = 0.0F;
  product_.resize(S_.rows, S_.columns);
  for (std::int64_t i = 0; i < S_.size(); ++i)
    product_.values[i] = S_operand_.values[i] * D_operand_.values[i];
  store(product_, BackwardPoint::dG_last);
  for (std::int64_t l = 0; l < S_.rows; ++l) carried += sum_row(product_.row(l), product_.stride);
  round_values(&carried, &carried, 1, format_at(BackwardPoint::dG_last));
  float written = 0.0F;
  for (std::int64_t i = 0; i < L_; ++i) written += dot_rows(K_.row(i), dK_of_state_.row(i), K_.stride);
  return std::fma(from_start_[L_ - 1], carried, written);
}

float ChunkedBackward::gate_through_W(std::int64_t i) const {
  return decayed_beta_[i] * dot_rows(of_W_.row(i), K_.row(i), K_.stride);
}

void ChunkedBackward::gate_through_A() {
  scale_rows(beta_.data(), KK_, product_);
  for (std::int64_t i = 0; i < product_.size(); ++i) product_.values[i] *= dM_.values[i];
  store(product_, BackwardPoint::dG_of_A);
  for (std::int64_t i = 0; i < L_; ++i) {
    for (std::int64_t j = 0; j < i; ++j) {
      dG_[i] += product_.row(i)[j];
      dG_[j] -= product_.row(i)[j];
    }
  }
}

void ChunkedBackward::sum_gates() {
  round_values(dG_.data(), dG_.data(), L_, format_at(BackwardPoint::dG));
  float sum = 0.0F;
  for (std::int64_t i = L_; i-- > 0;) {
    sum += dG_[i];
    dG_[i] = sum;
  }
  round_values(dG_.data(), dG_.data(), L_, format_at(BackwardPoint::dg));
}

void ChunkedBackward::write_values(const BackwardHead& head, std::int64_t first) {
  round_in_place(dV_, contract_.output);
  if (system_.decay) sum_gates();
  for (std::int64_t i = 0; i < L_; ++i) {
    if (head.d_v.data) head.d_v.store(first + i, 0, dV_.columns, dV_.row(i));
    if (head.d_g.data) *head.d_g.row(first + i) = dG_[i];
    if (!head.d_beta.data) continue;
    float d_beta = beta_through_U(i) + beta_through_W(i) + beta_through_A(i);
    round_values(&d_beta, &d_beta, 1, format_at(BackwardPoint::dbeta));
    *head.d_beta.row(first + i) = d_beta;
  }
}

void ChunkedBackward::add_to_group(const Block& part, std::int64_t first, Block& sum) const {
  for (std::int64_t i = 0; i < part.rows; ++i) add_row(1.0F, part.row(i), sum.row(first + i), part.stride);
}

void ChunkedBackward::finish_keys(const BackwardGroup& group) {
  if (group.heads.size() > 1) {
    for (Block* sum : {&dQ_sum_, &dK_sum_, &dK_correction_sum_}) store(*sum, BackwardPoint::group_sum);
  }
  if (system_.delta) {
    add_block(dK_correction_sum_, dK_sum_);
    store(dK_sum_, BackwardPoint::dk);
  }
  const Head& x = group.heads.front().forward;
  write_keys(x.q, dQ_sum_, group.d_q);
  write_keys(x.k, dK_sum_, group.d_k);
}

void ChunkedBackward::write_keys(const Rows<const float>& x, Block& gradient, const Rows<float>& to) {
  if (!to.data) return;
  operand_.resize(1, gradient.columns);
  for (std::int64_t t = 0; t < gradient.rows; ++t) {
    float* const row = gradient.row(t);
    if (arguments_.l2norm) {
      x.load(t, 0, gradient.columns, operand_.row(0));
      l2_normalise_back(operand_.row(0), row, gradient.columns, format_at(BackwardPoint::y),
                        format_at(BackwardPoint::dy));
    }
    round_values(row, row, gradient.columns, contract_.output);
    to.store(t, 0, gradient.columns, row);
  }
}

Outcome run_chunked_backward_with(const MakeChunkedBackward& make, const System& system,
                                  const KernelCall& call, const Contract& contract) {
  const BackwardArguments arguments = backward_arguments_of(call);
  const Sizes sizes = checked_sizes(arguments);
  std::string reason = refused_chunk(arguments.forward, sizes);
  if (reason.empty()) reason = unsupported_reason(system, arguments, contract);
  if (!reason.empty()) return {Outcome::Kind::unsupported, std::move(reason)};
  for_each_task(sizes.sequences * sizes.key_heads, call.threads, [&] {
    return [&, worker = make(system, arguments, contract)](std::int64_t task) {
      worker->run(backward_group_of(arguments, sizes, task / sizes.key_heads, task % sizes.key_heads));
    };
  });
  return {};
}

}  // namespace samestate::cpu

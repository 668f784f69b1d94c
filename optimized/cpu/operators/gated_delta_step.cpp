#include "optimized/cpu/operators/gated_delta_step.h"

#include <cmath>
#include <memory>

#include "optimized/call.h"
#include "optimized/cpu/l2norm.h"
#include "optimized/cpu/operators/layer_parts.h"
#include "optimized/slots.h"

namespace samestate::cpu {

GatedDeltaStepHead::GatedDeltaStepHead(const OperatorArguments& call, const Contract& contract)
    : call_(call),
      contract_(contract),
      Hk_(call.parameter("Hk")),
      Hv_(call.parameter("Hv")),
      P_(call.parameter("P")),
      dk_(call.parameter("dk")),
      dv_(call.parameter("dv")),
      q_(static_cast<std::size_t>(dk_)),
      k_(q_.size()),
      o_(static_cast<std::size_t>(dv_)) {}

void GatedDeltaStepHead::run(std::int64_t b, std::int64_t h) {
  const std::int64_t from = slot_read(b);
  const std::int64_t to = slot_written(b);
  for (std::int64_t p = 0; p < P_; ++p) {
    if (p == to) continue;
    for (std::int64_t i = 0; i < dk_; ++i) std::copy_n(given(b, p, h).row(i), dv_, left(b, p, h).row(i));
  }
  const auto o = rows_of(call_.output("o"), b);
  if (from < 0) {
    for (std::int64_t t = 0; t < call_.tokens; ++t) std::fill_n(o.row(t * Hv_ + h), dv_, 0.0F);
    return;
  }
  copy_transposed(given(b, from, h), state_);
  for (std::int64_t t = 0; t < call_.tokens; ++t) {
    token(b, t, h);
    round_values(o_.data(), o.row(t * Hv_ + h), dv_, contract_.output);
  }
  transpose(state_, rows_);
  store_rounded(rows_, left(b, to, h), contract_.state);
}

std::int64_t GatedDeltaStepHead::slot_read(std::int64_t b) const {
  return std::llround(call_.input("slot").data[b]);
}

float GatedDeltaStepHead::log_decay(float a, std::int64_t h) const {
  return -std::exp(call_.input("A_log").data[h]) * layer::softplus(a + call_.input("dt_bias").data[h]);
}

float GatedDeltaStepHead::strength(float b) const { return layer::logistic(b); }

void GatedDeltaStepHead::normalise(float* x) const {
  if (call_.parameter("l2norm") != 0) l2_normalise(x, dk_);
}

float GatedDeltaStepHead::scale() const { return 1.0F / std::sqrt(static_cast<float>(dk_)); }

/// Sums in kLanes partial sums.
float GatedDeltaStepHead::dot(const float* x, const std::vector<float>& y) const {
  float partial[kLanes] = {};
  for (std::int64_t i = 0; i < dk_; ++i)
    partial[i % kLanes] = std::fma(x[i], y[static_cast<std::size_t>(i)], partial[i % kLanes]);
  float sum = 0.0F;
  for (const float part : partial) sum += part;
  return sum;
}

float GatedDeltaStepHead::pass(float* S, float v) const {
  const float u = strength_ * (v - decay_ * dot(S, k_));
  for (std::int64_t i = 0; i < dk_; ++i) S[i] = std::fma(u, k_[static_cast<std::size_t>(i)], decay_ * S[i]);
  return dot(S, q_);
}

TensorRows<const float> GatedDeltaStepHead::given(std::int64_t b, std::int64_t slot, std::int64_t h) const {
  return rows_of(call_.input("pool"), b).rows((slot * Hv_ + h) * dk_, dk_);
}

TensorRows<float> GatedDeltaStepHead::left(std::int64_t b, std::int64_t slot, std::int64_t h) const {
  return rows_of(call_.output("pool"), b).rows((slot * Hv_ + h) * dk_, dk_);
}

void GatedDeltaStepHead::load_key(std::string_view name, std::int64_t b, std::int64_t row,
                                  std::vector<float>& to) const {
  std::copy_n(rows_of(call_.input(name), b).row(row), dk_, to.data());
  normalise(to.data());
}

void GatedDeltaStepHead::token(std::int64_t b, std::int64_t t, std::int64_t h) {
  load_key("q", b, t * Hk_ + key_head(h), q_);
  load_key("k", b, t * Hk_ + key_head(h), k_);
  g_ = log_decay(rows_of(call_.input("a"), b).row(t)[h], h);
  decay_ = std::exp(g_);
  strength_ = strength(rows_of(call_.input("b"), b).row(t)[h]);
  const float* v = rows_of(call_.input("v"), b).row(t * Hv_ + h);
  for (std::int64_t c = 0; c < dv_; ++c)
    o_[static_cast<std::size_t>(c)] = scale() * pass(state_.row(c), v[c]);
}

Outcome gated_delta_step_expanded(const OperatorArguments& call, const Contract& contract) {
  (void)slots_of(call);  // refuses slots that a head would round to another one
  const std::int64_t Hv = call.parameter("Hv");
  for_each_task(call.batch * Hv, call.threads, [&] {
    return [head = std::make_unique<GatedDeltaStepHead>(call, contract), Hv](std::int64_t task) {
      head->run(task / Hv, task % Hv);
    };
  });
  return {};
}

}  // namespace samestate::cpu

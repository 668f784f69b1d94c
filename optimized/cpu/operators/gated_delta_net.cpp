#include "optimized/cpu/operators/gated_delta_net.h"

#include <algorithm>
#include <cmath>

#include "optimized/cpu/chunked.h"
#include "optimized/cpu/l2norm.h"
#include "optimized/cpu/operators/gated_delta_net_layer.h"

namespace samestate::cpu {
void gated_norm(float* core, const float* z, const float* weight, std::int64_t dv) {
  const float factor = layer::inverse_root_mean_square(core, dv, 1e-6F);
  for (std::int64_t c = 0; c < dv; ++c) core[c] = core[c] * factor * weight[c] * layer::silu(z[c]);
}

GatedDeltaNetLayer::GatedDeltaNetLayer(const OperatorArguments& call, const Contract& contract)
    : call_(call),
      contract_(contract),
      kept_(layer::kept(contract)),
      B_(call.batch),
      T_(call.tokens),
      Hk_(call.parameter("Hk")),
      R_(call.parameter("R")),
      Hv_(Hk_ * R_),
      dk_(call.parameter("dk")),
      dv_(call.parameter("dv")),
      channels_(2 * Hk_ * dk_ + Hv_ * dv_),
      qkvz_(layer::transposed(call.input("in_proj_qkvz"))),
      ba_(layer::transposed(call.input("in_proj_ba"))),
      taps_(layer::transposed(call.input("conv1d"))),
      out_(layer::transposed(call.input("out_proj"))) {}

Outcome GatedDeltaNetLayer::run() {
  Arguments core;
  q_view_ = q_.resize<4>({B_, T_, Hk_, dk_});
  k_view_ = k_.resize<4>({B_, T_, Hk_, dk_});
  v_view_ = v_.resize<4>({B_, T_, Hv_, dv_});
  z_view_ = z_.resize<4>({B_, T_, Hv_, dv_});
  g_view_ = g_.resize<3>({B_, T_, Hv_});
  beta_view_ = beta_.resize<3>({B_, T_, Hv_});
  core.o = o_.resize<4>({B_, T_, Hv_, dv_});
  core.q = q_view_;
  core.k = k_view_;
  core.v = v_view_;
  core.g = g_view_;
  core.beta = beta_view_;
  core.initial_state = row_major<const float, 4>(call_.input("S").data, {B_, Hv_, dk_, dv_});
  core.final_state = row_major<float, 4>(call_.output("S").data, {B_, Hv_, dk_, dv_});
  core.scale = 1.0F / std::sqrt(static_cast<float>(dk_));
  core.chunk = std::max<std::int64_t>(call_.chunk, 1);
  core.threads = call_.threads;
  for_each_task(B_, call_.threads, [&] { return [&](std::int64_t b) { project(b); }; });
  if (Outcome outcome = rule(core); outcome.kind != Outcome::Kind::ran) return outcome;
  for_each_task(B_, call_.threads, [&] { return [&](std::int64_t b) { finish(b); }; });
  return {};
}

/// Projects the hidden states of sequence b to q, k, v, z, g and beta, and updates its convolution state.
void GatedDeltaNetLayer::project(std::int64_t b) {
  Block x, qkvz, ba, history;
  copy(rows_of(call_.input("x"), b), x);
  const auto mask = rows_of(call_.input("mask"), b);
  for (std::int64_t t = 0; t < T_; ++t) {
    if (*mask.row(t) == 0.0F) std::fill_n(x.row(t), x.columns, 0.0F);
  }
  projected(x, qkvz_, qkvz);
  projected(x, ba_, ba);
  round_in_place(qkvz, kept_);
  round_in_place(ba, kept_);
  const std::int64_t before = taps_.rows - 1;
  history.resize(before + T_, channels_);
  const auto state = rows_of(call_.input("convolution"), b);
  for (std::int64_t i = 0; i < before; ++i) std::copy_n(state.row(i), channels_, history.row(i));
  for (std::int64_t t = 0; t < T_; ++t) {
    ungroup(qkvz.row(t), history.row(before + t), b, t);
    layer::hand_out(call_, "mixed", b, t, history.row(before + t), channels_);
    layer::hand_out(call_, "z", b, t, &z_view_(b, t, 0, 0), Hv_ * dv_);
  }
  const auto carried = rows_of(call_.output("convolution"), b);
  for (std::int64_t i = 0; i < before; ++i) {
    round_values(history.row(T_ + i), carried.row(i), channels_, contract_.output);
  }
  std::vector<float> mixed(static_cast<std::size_t>(history.stride));
  for (std::int64_t t = 0; t < T_; ++t) {
    convolved(taps_, history, t, mixed.data());
    round_values(mixed.data(), mixed.data(), channels_, kept_);
    layer::hand_out(call_, "convolved", b, t, mixed.data(), channels_);
    for (std::int64_t h = 0; h < Hk_; ++h) {
      normalise(mixed.data() + h * dk_, &q_view_(b, t, h, 0));
      normalise(mixed.data() + (Hk_ + h) * dk_, &k_view_(b, t, h, 0));
    }
    std::copy_n(mixed.data() + 2 * Hk_ * dk_, Hv_ * dv_, &v_view_(b, t, 0, 0));
    gates(ba.row(t), b, t);
    layer::hand_out(call_, "q", b, t, &q_view_(b, t, 0, 0), Hk_ * dk_);
    layer::hand_out(call_, "k", b, t, &k_view_(b, t, 0, 0), Hk_ * dk_);
    layer::hand_out(call_, "g", b, t, &g_view_(b, t, 0), Hv_);
    layer::hand_out(call_, "beta", b, t, &beta_view_(b, t, 0), Hv_);
  }
}

/// Rearranges a checkpoint's order (for each key head: q, k, then v and z of the heads that it serves) into
/// flat channels q, k, v, and z separately.
void GatedDeltaNetLayer::ungroup(const float* grouped, float* flat, std::int64_t b, std::int64_t t) const {
  const std::int64_t served = R_ * dv_;
  for (std::int64_t h = 0; h < Hk_; ++h) {
    const float* from = grouped + h * (2 * dk_ + 2 * served);
    std::copy_n(from, dk_, flat + h * dk_);
    std::copy_n(from + dk_, dk_, flat + (Hk_ + h) * dk_);
    std::copy_n(from + 2 * dk_, served, flat + 2 * Hk_ * dk_ + h * served);
    std::copy_n(from + 2 * dk_ + served, served, &z_view_(b, t, h * R_, 0));
  }
}

void GatedDeltaNetLayer::normalise(const float* from, float* to) const {
  std::copy_n(from, dk_, to);
  normalised(to, dk_);
  round_values(to, to, dk_, kept_);
}

/// Computes g = -e^A softplus(a + bias) and beta = sigma(b); for each key head, b and then a of the heads
/// that it serves.
void GatedDeltaNetLayer::gates(const float* ba, std::int64_t b, std::int64_t t) const {
  const float* rate = call_.input("A_log").data;
  const float* bias = call_.input("dt_bias").data;
  for (std::int64_t h = 0; h < Hv_; ++h) {
    const float* group = ba + h / R_ * 2 * R_ + h % R_;
    beta_view_(b, t, h) = strength(group[0]);
    g_view_(b, t, h) = log_decay(group[R_], bias[h], rate[h]);
    layer::hand_out(call_, "b", b, t, group, 1, h);
    layer::hand_out(call_, "a", b, t, group + R_, 1, h);
  }
}

/// Computes what follows the rule for sequence b.
void GatedDeltaNetLayer::finish(std::int64_t b) {
  Block core;
  core.resize(T_, Hv_ * dv_);
  for (std::int64_t t = 0; t < T_; ++t) {
    round_values(o_.values.data() + (b * T_ + t) * Hv_ * dv_, core.row(t), Hv_ * dv_, kept_);
  }
  store_rounded(core, rows_of(call_.output("core"), b), contract_.output);
  const float* weight = call_.input("norm").data;
  for (std::int64_t t = 0; t < T_; ++t) {
    for (std::int64_t h = 0; h < Hv_; ++h) normed(core.row(t) + h * dv_, &z_view_(b, t, h, 0), weight, dv_);
  }
  round_in_place(core, kept_);
  for (std::int64_t t = 0; t < T_; ++t) layer::hand_out(call_, "gated", b, t, core.row(t), Hv_ * dv_);
  Block y;
  output(core, out_, y);
  round_in_place(y, kept_);
  store_rounded(y, rows_of(call_.output("y"), b), contract_.output);
}

void GatedDeltaNetLayer::projected(const Block& x, const Block& weight, Block& y) const {
  cpu::project(x, weight, y, MatrixUnit::of(contract_));
}
void GatedDeltaNetLayer::output(const Block& gated, const Block& weight, Block& y) const {
  cpu::project(gated, weight, y, MatrixUnit::of(contract_));
}
void GatedDeltaNetLayer::convolved(const Block& taps, const Block& history, std::int64_t t, float* y) const {
  layer::convolve(taps, history, t, y);
}
void GatedDeltaNetLayer::normalised(float* x, std::int64_t dk) const { l2_normalise(x, dk); }
float GatedDeltaNetLayer::strength(float b) const { return layer::logistic(b); }
float GatedDeltaNetLayer::log_decay(float a, float bias, float rate) const {
  return -std::exp(rate) * layer::softplus(a + bias);
}
Outcome GatedDeltaNetLayer::rule_of(const Arguments& core, const Contract& own) {
  return run_chunked<GATED_DELTA_RULE>(core, own);
}
void GatedDeltaNetLayer::normed(float* core, const float* z, const float* weight, std::int64_t dv) const {
  gated_norm(core, z, weight, dv);
}

Outcome gated_delta_net_chunks(const OperatorArguments& call, const Contract& contract) {
  return run_layer<GatedDeltaNetLayer>(call, contract);
}

Outcome gated_delta_net_output_fused(const OperatorArguments& call, const Contract& contract) {
  const Block out_proj = layer::transposed(call.input("out_proj"));
  const NamedTensor<const float>& norm = call.input("norm");
  const std::int64_t dv = norm.shape.back();
  for_each_task(call.batch, call.threads, [&] {
    return [&, core = Block{}, y = Block{}](std::int64_t b) mutable {
      copy(rows_of(call.input("core"), b), core);
      const auto z = rows_of(call.input("z"), b);
      for (std::int64_t t = 0; t < core.rows; ++t) {
        for (std::int64_t first = 0; first < core.columns; first += dv)
          gated_norm(core.row(t) + first, z.row(t) + first, norm.data, dv);
      }
      round_in_place(core, layer::kept(contract));
      project(core, out_proj, y, MatrixUnit::of(contract));
      round_in_place(y, layer::kept(contract));
      store_rounded(y, rows_of(call.output("y"), b), contract.output);
    };
  });
  return {};
}

}  // namespace samestate::cpu

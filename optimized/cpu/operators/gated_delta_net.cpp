#include "optimized/cpu/operators/gated_delta_net.h"

#include <cmath>

#include "optimized/cpu/chunked.h"
#include "optimized/cpu/l2norm.h"
#include "optimized/cpu/operators/layer_parts.h"

namespace samestate::cpu {
namespace {

/// Norm of every head of `core`, its gate by z, and the output projection. Overwrites `core`.
void gate_and_project(Block& core, const TensorRows<const float>& z, const NamedTensor<const float>& norm,
                      const Block& out_proj, const Contract& contract, const TensorRows<float>& to) {
  const std::int64_t dv = norm.shape.back();
  for (std::int64_t t = 0; t < core.rows; ++t) {
    for (std::int64_t first = 0; first < core.columns; first += dv) {
      float* row = core.row(t) + first;
      const float* gate = z.row(t) + first;
      const float factor = layer::inverse_root_mean_square(row, dv, 1e-6F);
      for (std::int64_t c = 0; c < dv; ++c) row[c] = row[c] * factor * norm.data[c] * layer::silu(gate[c]);
    }
  }
  round_in_place(core, layer::kept(contract));
  Block y;
  project(core, out_proj, y, MatrixUnit::of(contract));
  round_in_place(y, layer::kept(contract));
  store_rounded(y, to, contract.output);
}

/// One call of the layer. Every token passes project() and finish(); the rule runs between them on the whole
/// batch.
class GatedDeltaNetLayer {
 public:
  GatedDeltaNetLayer(const OperatorArguments& call, const Contract& contract)
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

  Outcome run() {
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
    // q and k are normalised and rounded already, and the rule's own operands are fp32 or those of a tf32 unit.
    if (Outcome outcome = run_chunked<GATED_DELTA_RULE>(core, layer::of_core(contract_));
        outcome.kind != Outcome::Kind::ran) {
      return outcome;
    }
    for_each_task(B_, call_.threads, [&] { return [&](std::int64_t b) { finish(b); }; });
    return {};
  }

 private:
  /// Hidden states to q, k, v, z, g, beta of sequence b, and its convolution state.
  void project(std::int64_t b) {
    Block x, qkvz, ba, history;
    copy(rows_of(call_.input("x"), b), x);
    const auto mask = rows_of(call_.input("mask"), b);
    for (std::int64_t t = 0; t < T_; ++t) {
      if (*mask.row(t) == 0.0F) std::fill_n(x.row(t), x.columns, 0.0F);
    }
    cpu::project(x, qkvz_, qkvz, MatrixUnit::of(contract_));
    cpu::project(x, ba_, ba, MatrixUnit::of(contract_));
    round_in_place(qkvz, kept_);
    round_in_place(ba, kept_);
    const std::int64_t before = taps_.rows - 1;
    history.resize(before + T_, channels_);
    const auto state = rows_of(call_.input("convolution"), b);
    for (std::int64_t i = 0; i < before; ++i) std::copy_n(state.row(i), channels_, history.row(i));
    for (std::int64_t t = 0; t < T_; ++t) ungroup(qkvz.row(t), history.row(before + t), b, t);
    const auto carried = rows_of(call_.output("convolution"), b);
    for (std::int64_t i = 0; i < before; ++i) {
      round_values(history.row(T_ + i), carried.row(i), channels_, contract_.output);
    }
    std::vector<float> mixed(static_cast<std::size_t>(history.stride));
    for (std::int64_t t = 0; t < T_; ++t) {
      layer::convolve(taps_, history, t, mixed.data());
      round_values(mixed.data(), mixed.data(), channels_, kept_);
      for (std::int64_t h = 0; h < Hk_; ++h) {
        normalise(mixed.data() + h * dk_, &q_view_(b, t, h, 0));
        normalise(mixed.data() + (Hk_ + h) * dk_, &k_view_(b, t, h, 0));
      }
      std::copy_n(mixed.data() + 2 * Hk_ * dk_, Hv_ * dv_, &v_view_(b, t, 0, 0));
      gates(ba.row(t), b, t);
    }
  }

  /// From the order of a checkpoint (by key head: q, k, then v and z of the heads it serves) to flat channels
  /// q, k, v, and z apart.
  void ungroup(const float* grouped, float* flat, std::int64_t b, std::int64_t t) const {
    const std::int64_t served = R_ * dv_;
    for (std::int64_t h = 0; h < Hk_; ++h) {
      const float* from = grouped + h * (2 * dk_ + 2 * served);
      std::copy_n(from, dk_, flat + h * dk_);
      std::copy_n(from + dk_, dk_, flat + (Hk_ + h) * dk_);
      std::copy_n(from + 2 * dk_, served, flat + 2 * Hk_ * dk_ + h * served);
      std::copy_n(from + 2 * dk_ + served, served, &z_view_(b, t, h * R_, 0));
    }
  }

  void normalise(const float* from, float* to) const {
    std::copy_n(from, dk_, to);
    l2_normalise(to, dk_);
    round_values(to, to, dk_, kept_);
  }

  /// g = -e^A softplus(a + bias), beta = sigma(b); by key head: b, then a of the heads it serves.
  void gates(const float* ba, std::int64_t b, std::int64_t t) const {
    const float* rate = call_.input("A_log").data;
    const float* bias = call_.input("dt_bias").data;
    for (std::int64_t h = 0; h < Hv_; ++h) {
      const float* group = ba + h / R_ * 2 * R_ + h % R_;
      beta_view_(b, t, h) = layer::logistic(group[0]);
      g_view_(b, t, h) = -std::exp(rate[h]) * layer::softplus(group[R_] + bias[h]);
    }
  }

  /// What follows the rule, for sequence b.
  void finish(std::int64_t b) {
    Block core;
    core.resize(T_, Hv_ * dv_);
    for (std::int64_t t = 0; t < T_; ++t) {
      round_values(o_.values.data() + (b * T_ + t) * Hv_ * dv_, core.row(t), Hv_ * dv_, kept_);
    }
    store_rounded(core, rows_of(call_.output("core"), b), contract_.output);
    const std::int64_t width = Hv_ * dv_;
    const TensorRows<const float> z{z_.values.data() + b * T_ * width, T_, width, width};
    gate_and_project(core, z, call_.input("norm"), out_, contract_, rows_of(call_.output("y"), b));
  }

  const OperatorArguments& call_;
  const Contract& contract_;
  Format kept_;
  std::int64_t B_, T_, Hk_, R_, Hv_, dk_, dv_, channels_;
  Block qkvz_, ba_, taps_, out_;
  layer::Dense q_, k_, v_, z_, g_, beta_, o_;
  View<float, 4> q_view_, k_view_, v_view_, z_view_;
  View<float, 3> g_view_, beta_view_;
};

}  // namespace

Outcome gated_delta_net_chunks(const OperatorArguments& call, const Contract& contract) {
  return GatedDeltaNetLayer(call, contract).run();
}

Outcome gated_delta_net_output_fused(const OperatorArguments& call, const Contract& contract) {
  const Block out_proj = layer::transposed(call.input("out_proj"));
  for_each_task(call.batch, call.threads, [&] {
    return [&, core = Block{}](std::int64_t b) mutable {
      copy(rows_of(call.input("core"), b), core);
      gate_and_project(core, rows_of(call.input("z"), b), call.input("norm"), out_proj, contract,
                       rows_of(call.output("y"), b));
    };
  });
  return {};
}

}  // namespace samestate::cpu

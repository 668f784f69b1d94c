#include "optimized/cpu/operators/dendritic_attention.h"

#include <cmath>

#include "optimized/cpu/operators/dendritic_sequence.h"
#include "optimized/cpu/recurrent.h"

namespace samestate::cpu {
namespace dendritic {

Extents::Extents(const OperatorArguments& call)
    : T(call.tokens),
      H(call.parameter("H")),
      N(call.parameter("N")),
      d(N * call.parameter("stride") + call.parameter("O")),
      stride(N > 1 ? call.parameter("stride") : d),
      w(N > 1 ? stride + call.parameter("O") : d),
      dv(call.parameter("dv")),
      shared(call.parameter("Es")),
      routed(call.parameter("K")),
      candidates(routed + call.parameter("idle")),
      E(shared + candidates),
      W(call.parameter("W")) {}

Weights::Weights(const OperatorArguments& call, const Extents& n)
    : q(layer::transposed(call.input("q_proj"))),
      k(layer::transposed(call.input("k_proj"))),
      v(layer::transposed(call.input("v_proj"))),
      g(layer::transposed(call.input("g_proj"))),
      o(layer::transposed(call.input("o_proj"))),
      b(layer::transposed(call.input("b_proj"))),
      a(layer::transposed(call.input("a_proj"))),
      q_taps(layer::transposed(call.input("q_conv"))),
      k_taps(layer::transposed(call.input("k_conv"))),
      v_taps(layer::transposed(call.input("v_conv"))),
      q_expansion(static_cast<std::size_t>(n.H)),
      k_expansion(static_cast<std::size_t>(n.H)) {
  const std::int64_t rows = n.E * n.d;
  for (std::int64_t h = 0; h < n.H; ++h) {
    copy_transposed(rows_of(call.input("q_expansion"), 0, false).rows(h * rows, rows), q_expansion[h]);
    copy_transposed(rows_of(call.input("k_expansion"), 0, false).rows(h * rows, rows), k_expansion[h]);
  }
}

Sequence::Sequence(const OperatorArguments& call, const Contract& contract, const Extents& extents,
                   const Weights& weights, std::int64_t b)
    : n_(extents),
      contract_(contract),
      kept_(layer::kept(contract)),
      call_(call),
      w_(weights),
      b_(b),
      mask_(rows_of(call.input("mask"), b)) {}

namespace {

View<const float, 4> gathered(const Block& x, const std::vector<std::int64_t>& tokens, std::int64_t first,
                              std::int64_t width, std::vector<float>& to) {
  to.assign(tokens.size() * static_cast<std::size_t>(width) + 1, 0.0F);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::copy_n(x.row(tokens[i]) + first, width, to.data() + static_cast<std::int64_t>(i) * width);
  }
  return {to.data(), {}, {}};
}

/// Returns column m for `tokens`; it is the same for all N windows.
View<const float, 3> gate(const Block& x, const std::vector<std::int64_t>& tokens, std::int64_t m,
                          std::int64_t N, std::vector<float>& to) {
  to.assign(tokens.size() + 1, 0.0F);
  for (std::size_t i = 0; i < tokens.size(); ++i) to[i] = x.row(tokens[i])[m];
  const auto A = static_cast<std::int64_t>(tokens.size());
  return {to.data(), {1, A, N}, {A, 1, 0}};
}

/// Copies the rows of x, from column `column` on, to the tokens of a tap.
void hand_out_rows(const OperatorArguments& call, std::string_view tap, std::int64_t b, const Block& x,
                   std::int64_t column = 0) {
  for (std::int64_t t = 0; t < x.rows; ++t) layer::hand_out(call, tap, b, t, x.row(t), x.columns, column);
}

}  // namespace

void Sequence::run() {
  Block x, q, k, v, beta, a, expanded_q, expanded_k;
  copy(rows_of(call_.input("x"), b_), x);
  projected(x, w_.q, q);  // 1
  projected(x, w_.k, k);
  projected(x, w_.v, v);
  projected(x, w_.g, z_);
  projected(x, w_.b, beta);
  projected(x, w_.a, a);
  drop_pads(v);  // 6
  hand_out_rows(call_, "q", b_, q);
  hand_out_rows(call_, "k", b_, k);
  hand_out_rows(call_, "v", b_, v);
  hand_out_rows(call_, "z", b_, z_);
  hand_out_rows(call_, "b", b_, beta);
  hand_out_rows(call_, "a_gate", b_, a);
  gates(beta, a);
  route();
  mixed_.resize(n_.T, n_.H * n_.dv);
  convolved(v, w_.v_taps, "conv_v", 0, v_);  // 7
  hand_out_rows(call_, "v_convolved", b_, v_);
  std::vector<Block> wide_q(static_cast<std::size_t>(n_.H));
  std::vector<Block> wide_k(static_cast<std::size_t>(n_.H));
  for (std::int64_t h = 0; h < n_.H; ++h) {  // 5
    head_of(q, h, x);
    projected(x, w_.q_expansion[h], wide_q[h]);
    head_of(k, h, x);
    projected(x, w_.k_expansion[h], wide_k[h]);
  }
  for (std::int64_t e = 0; e < n_.E; ++e) {
    branch_of(wide_q, e, expanded_q);
    branch_of(wide_k, e, expanded_k);
    drop_pads(expanded_q);
    drop_pads(expanded_k);
    expanded(e, expanded_q, expanded_k);
    convolved(expanded_q, w_.q_taps, "conv_q", e, q_);
    convolved(expanded_k, w_.k_taps, "conv_k", e, k_);
    const std::int64_t first = e * n_.H * n_.d;
    hand_out_rows(call_, "q_expanded", b_, expanded_q, first);
    hand_out_rows(call_, "k_expanded", b_, expanded_k, first);
    hand_out_rows(call_, "q_convolved", b_, q_, first);
    hand_out_rows(call_, "k_convolved", b_, k_, first);
    for (std::int64_t h = 0; h < n_.H; ++h) run_head(e, h);
  }
  finish();
}

void Sequence::projected(const Block& x, const Block& weight, Block& y) const {
  product(x, weight, y);
  round_in_place(y, kept_);
}

void Sequence::product(const Block& x, const Block& weight, Block& y) const {
  cpu::project(x, weight, y, MatrixUnit::of(contract_));
}
void Sequence::output(const Block& gated, const Block& weight, Block& y) const {
  cpu::project(gated, weight, y, MatrixUnit::of(contract_));
}

void Sequence::drop_pads(Block& x) const {
  for (std::int64_t t = 0; t < n_.T; ++t) {
    if (*mask_.row(t) == 0.0F) std::fill_n(x.row(t), x.columns, 0.0F);
  }
}

void Sequence::head_of(const Block& x, std::int64_t h, Block& to) const {
  to.resize(n_.T, n_.d);
  for (std::int64_t t = 0; t < n_.T; ++t) std::copy_n(x.row(t) + h * n_.d, n_.d, to.row(t));
}

void Sequence::branch_of(const std::vector<Block>& wide, std::int64_t e, Block& to) const {
  to.resize(n_.T, n_.H * n_.d);
  for (std::int64_t t = 0; t < n_.T; ++t) {
    for (std::int64_t h = 0; h < n_.H; ++h)
      std::copy_n(wide[h].row(t) + e * n_.d, n_.d, to.row(t) + h * n_.d);
  }
}

/// Computes beta and g of every branch and head; they are zero on pads (9).
void Sequence::gates(const Block& b, const Block& a) {
  const std::int64_t heads = n_.E * n_.H;
  beta_.resize(n_.T, heads);
  g_.resize(n_.T, heads);
  const float* rate = call_.input("A_log").data;
  const float* bias = call_.input("dt_bias").data;
  for (std::int64_t t = 0; t < n_.T; ++t) {
    const bool real = *mask_.row(t) != 0.0F;
    for (std::int64_t m = 0; m < heads; ++m) {
      beta_.row(t)[m] = strength(b.row(t)[m]);
      g_.row(t)[m] = log_decay(a.row(t)[m], bias[m], rate[m]);
    }
    layer::hand_out(call_, "beta", b_, t, beta_.row(t), heads);
    layer::hand_out(call_, "g", b_, t, g_.row(t), heads);
    if (real) continue;
    std::fill_n(beta_.row(t), heads, 0.0F);
    std::fill_n(g_.row(t), heads, 0.0F);
  }
}

float Sequence::strength(float b) const { return layer::logistic(b); }
float Sequence::log_decay(float a, float bias, float rate) const {
  return -std::exp(rate) * layer::softplus(a + bias);
}

/// Computes omega of every head from the scores; it is 0 where a branch is not used (3, 4).
void Sequence::route() {
  omega_.resize(n_.T, n_.H * n_.E);
  used_.assign(static_cast<std::size_t>(n_.T * n_.H * n_.E), 0);
  const auto scores = rows_of(call_.input("scores"), b_);
  const float parts = (n_.shared > 0 ? 1.0F : 0.0F) + (n_.routed > 0 ? 1.0F : 0.0F);
  for (std::int64_t t = 0; t < n_.T; ++t) {
    for (std::int64_t h = 0; h < n_.H; ++h) {
      const float* score = scores.row(t) + h * n_.candidates;
      float* omega = omega_.row(t) + h * n_.E;
      char* used = used_.data() + (t * n_.H + h) * n_.E;
      for (std::int64_t e = 0; e < n_.shared; ++e) {
        omega[e] = 1.0F / (static_cast<float>(n_.shared) * parts);
        used[e] = 1;
      }
      float sum = 0.0F;
      for (std::int64_t i = 0; i < n_.routed; ++i) {
        std::int64_t best = -1;
        for (std::int64_t c = 0; c < n_.candidates; ++c) {
          if (!used[n_.shared + c] && (best < 0 || score[c] > score[best])) best = c;
        }
        used[n_.shared + best] = 1;
        sum += score[best];
      }
      for (std::int64_t c = 0; c < n_.candidates; ++c) {
        if (used[n_.shared + c]) omega[n_.shared + c] = score[c] / (sum * parts);
      }
    }
  }
}

/// Applies the convolution to all tokens, and updates the state of branch `part`.
void Sequence::convolved(const Block& x, const Block& taps, std::string_view state, std::int64_t part,
                         Block& y) {
  const std::int64_t width = x.columns;
  const std::int64_t before = n_.W - 1;
  Block history;
  history.resize(before + n_.T, width);
  if (before > 0) {
    const auto from = rows_of(call_.input(state), b_).rows(part * before, before);
    for (std::int64_t i = 0; i < before; ++i) std::copy_n(from.row(i), width, history.row(i));
  }
  for (std::int64_t t = 0; t < n_.T; ++t) std::copy_n(x.row(t), width, history.row(before + t));
  y.resize(n_.T, width);
  for (std::int64_t t = 0; t < n_.T; ++t) convolve(taps, history, t, y.row(t));
  round_in_place(y, kept_);
  if (before > 0) {
    const auto to = rows_of(call_.output(state), b_).rows(part * before, before);
    for (std::int64_t i = 0; i < before; ++i) {
      round_values(history.row(n_.T + i), to.row(i), width, contract_.output);
    }
  }
}

void Sequence::windows(std::int64_t e, std::int64_t h, const std::vector<std::int64_t>& tokens,
                       Arguments& core) {
  const auto A = static_cast<std::int64_t>(tokens.size());
  const std::int64_t m = e * n_.H + h;
  core.q = gathered(q_, tokens, h * n_.d, n_.d, q_rows_);
  core.k = gathered(k_, tokens, h * n_.d, n_.d, k_rows_);
  // All windows share the values and the gates of their head: their stride is 0.
  core.v = gathered(v_, tokens, h * n_.dv, n_.dv, v_rows_);
  core.q.shape = core.k.shape = {1, A, n_.N, n_.w};
  core.q.stride = core.k.stride = {A * n_.d, n_.d, n_.stride, 1};
  core.v.shape = {1, A, n_.N, n_.dv};
  core.v.stride = {A * n_.dv, n_.dv, 0, 1};
  core.g = gate(g_, tokens, m, n_.N, g_rows_);
  core.beta = gate(beta_, tokens, m, n_.N, beta_rows_);
  core.scale = 1.0F / std::sqrt(static_cast<float>(n_.w));
  core.l2norm = true;
}

/// Runs the windows of branch e of head h on the tokens that use it, and adds their part of the mixture (8 to
/// 16).
void Sequence::run_head(std::int64_t e, std::int64_t h) {
  std::vector<std::int64_t> active;
  for (std::int64_t t = 0; t < n_.T; ++t) {
    if (uses(t, h, e)) active.push_back(t);
  }
  const auto A = static_cast<std::int64_t>(active.size());
  const std::int64_t m = e * n_.H + h;
  Arguments core;
  windows(e, h, active, core);
  core.o = o_.resize<4>({1, A, n_.N, n_.dv});
  const std::int64_t size = n_.w * n_.dv;
  const std::int64_t first = (b_ * n_.N * n_.E * n_.H + m) * size;
  const std::array<std::int64_t, 4> shape{1, n_.N, n_.w, n_.dv};
  const std::array<std::int64_t, 4> stride{size, n_.E * n_.H * size, n_.dv, 1};
  core.initial_state = {call_.input("S").data + first, shape, stride};
  core.final_state = {call_.output("S").data + first, shape, stride};
  rule(core);
  round_values(o_.values.data(), o_.values.data(), static_cast<std::int64_t>(o_.values.size()), kept_);
  const std::vector<float> unused(static_cast<std::size_t>(n_.dv));
  for (std::int64_t t = 0, i = 0; t < n_.T; ++t) {
    const bool is_active = uses(t, h, e);
    for (std::int64_t n = 0; n < n_.N; ++n) {
      layer::hand_out(call_, "o", b_, t, is_active ? &core.o(0, i, n, 0) : unused.data(), n_.dv,
                      (n * n_.E * n_.H + m) * n_.dv);
    }
    i += is_active ? 1 : 0;
  }
  for (std::int64_t i = 0; i < A; ++i) {
    const float omega = omega_.row(active[i])[h * n_.E + e];
    mix(&core.o(0, i, 0, 0), core.o.stride[2], omega, mixed_.row(active[i]) + h * n_.dv);
  }
}

void Sequence::convolve(const Block& taps, const Block& history, std::int64_t t, float* y) const {
  layer::convolve(taps, history, t, y);
}
void Sequence::rule_of(const Arguments& core, const Contract& own) {
  (void)run_recurrent<GATED_DELTA_RULE>(core, own);
}
void Sequence::mix(const float* o, std::int64_t stride, float omega, float* to) const {
  for (std::int64_t c = 0; c < n_.dv; ++c) {
    float sum = 0.0F;
    for (std::int64_t n = 0; n < n_.N; ++n) sum += o[n * stride + c];
    to[c] += omega * sum;
  }
}
void Sequence::normed(float* a, const float* z, const float* weight) const {
  const float factor = layer::inverse_root_mean_square(a, n_.dv, 1e-5F);
  for (std::int64_t c = 0; c < n_.dv; ++c) a[c] = a[c] * factor * weight[c] * layer::silu(z[c]);
}

/// Applies the norm of each head, the gate and the projection (17, 18).
void Sequence::finish() {
  round_in_place(mixed_, kept_);
  store_rounded(mixed_, rows_of(call_.output("a"), b_), contract_.output);
  const float* weight = call_.input("o_norm").data;
  for (std::int64_t t = 0; t < n_.T; ++t) {
    for (std::int64_t h = 0; h < n_.H; ++h) normed(mixed_.row(t) + h * n_.dv, z_.row(t) + h * n_.dv, weight);
  }
  round_in_place(mixed_, kept_);
  hand_out_rows(call_, "gated", b_, mixed_);
  Block y;
  output(mixed_, w_.o, y);
  round_in_place(y, kept_);
  store_rounded(y, rows_of(call_.output("y"), b_), contract_.output);
}

}  // namespace dendritic

Outcome dendritic_attention_compacted(const OperatorArguments& call, const Contract& contract) {
  return dendritic::run<dendritic::Sequence>(call, contract);
}

}  // namespace samestate::cpu

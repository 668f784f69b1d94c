#include <cmath>

#include "fuzz/mutants/changed_call.h"
#include "optimized/cpu/rounding.h"

/// Norms (M48-M50, M52-M54), gates (M55-M59), the short convolution (M63-M68) and the normaliser (M60, M61).
namespace samestate::mutants {
namespace {

using Call = ChangedCall;

float power(std::span<const float> x) {
  double sum = 0.0;
  for (float v : x) sum += static_cast<double>(v) * static_cast<double>(v);
  return static_cast<float>(sum);
}
float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

/// y = factor(||x||^2, d) x by row of an output.
template <auto factor>
constexpr auto normed_by = [](Call& c) {
  const std::span<float> x = c.input("x");
  const std::span<float> y = c.output("y");
  const auto d = static_cast<std::size_t>(c.width("x"));
  for (std::size_t i = 0; i < x.size(); i += d) {
    const float f = factor(power(x.subspan(i, d)), static_cast<float>(d));
    for (std::size_t j = 0; j < d; ++j) y[i + j] = x[i + j] * f;
  }
};
constexpr auto clamped = [](float p, float) { return 1.0F / std::max(std::sqrt(p), 1e-6F); };
constexpr auto outside = [](float p, float) { return 1.0F / (std::sqrt(p) + 1e-6F); };
constexpr auto mean_epsilon = [](float p, float d) { return 1.0F / std::sqrt(d * (p / d + 1e-6F)); };

constexpr auto weight_plus_one = [](Call& c) {
  for (float& w : c.input("weight")) w += 1.0F;
};
constexpr auto weight_minus_one = [](Call& c) {
  for (float& w : c.input("weight")) w -= 1.0F;
};

/// The norm of x takes the weights; a product of norm and weight rounded to bf16 before the gate.
constexpr auto rounded_before_gate = [](Call& c) {
  const std::span<float> x = c.input("x");
  const auto d = static_cast<std::size_t>(c.width("x"));
  for (std::size_t i = 0; i < x.size(); i += d) {
    const float f = 1.0F / std::sqrt(power(x.subspan(i, d)) / static_cast<float>(d) + 1e-6F);
    for (std::size_t j = 0; j < d; ++j) {
      const float z = c.input("z")[i + j];
      c.output("y")[i + j] = cpu::to_bf16(x[i + j] * f) * c.input("weight")[j] * z * sigmoid(z);
    }
  }
};
constexpr auto gate_before_norm = [](Call& c) {
  const std::span<float> x = c.input("x");
  const std::span<float> z = c.input("z");
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= z[i] * sigmoid(z[i]);
  c.fill("z", 1.2784645F);  // silu of it is 1
};

constexpr auto bf16_beta = [](Call& c) {
  for (float& x : c.output("beta")) x = cpu::to_bf16(x);
};
constexpr auto silu_beta = [](Call& c) {
  for (std::size_t i = 0; i < c.output("beta").size(); ++i) c.output("beta")[i] *= c.input("b")[i];
};
constexpr auto rate_of_rate = [](Call& c) {
  for (float& a : c.input("A_log")) a = -std::exp(a);
};
constexpr auto bf16_rate = [](Call& c) {
  for (float& a : c.input("A_log")) a = cpu::to_bf16(a);
};
constexpr auto softplus_overflows = [](Call& c) {
  const std::span<float> g = c.output("g");
  const std::size_t H = c.input("A_log").size();
  for (std::size_t i = 0; i < g.size(); ++i) {
    const float x = c.input("a")[i] + c.input("dt_bias")[i % H];
    if (x > 15.0F) g[i] = -std::exp(c.input("A_log")[i % H]) * std::log(1.0F + std::exp(x));
  }
};

constexpr auto taps_reversed = [](Call& c) {
  each_row(c.input("kernel"), c.width("kernel"), [](std::span<float> w) { std::ranges::reverse(w); });
};
constexpr auto state_not_read = [](Call& c) { c.fill("state", 0.0F); };
constexpr auto short_call_keeps_state = [](Call& c) {
  if (c.call.tokens < c.at("W") - 1) std::ranges::copy(c.input("state"), c.output("state").begin());
};
constexpr auto one_vector_of_state = [](Call& c) {
  const std::int64_t C = c.at("C");
  each_row(c.output("state"), (c.at("W") - 1) * C,
           [C](std::span<float> state) { std::fill(state.begin(), state.end() - C, 0.0F); });
};
/// Every sequence starts from the last inputs of the one before it.
constexpr auto state_leaks = [](Call& c) {
  const std::int64_t C = c.at("C");
  const std::int64_t rows = c.at("W") - 1;
  const std::int64_t T = c.call.tokens;
  const std::span<float> x = c.input("x");
  const std::span<float> state = c.input("state");
  for (std::int64_t b = 1; b < c.call.batch && T >= rows; ++b)
    std::copy_n(x.begin() + (b * T - rows) * C, rows * C, state.begin() + b * rows * C);
};
constexpr auto activated_state = [](Call& c) {
  const std::int64_t C = c.at("C");
  const std::int64_t rows = c.at("W") - 1;
  const std::int64_t T = c.call.tokens;
  for (std::int64_t b = 0; b < c.call.batch && T >= rows; ++b)
    std::copy_n(c.output("y").begin() + ((b + 1) * T - rows) * C, rows * C,
                c.output("state").begin() + b * rows * C);
};

constexpr auto normaliser_not_carried = [](Call& c) { c.fill("z", 0.0F); };
/// o of the tokens after the first chunk is divided by the sums of its own chunk alone.
constexpr auto normaliser_per_chunk = [](Call& c) {
  const std::int64_t H = c.at("H"), dk = c.at("dk"), dv = c.at("dv"), T = c.call.tokens, C = c.call.chunk;
  const std::span<float> q = c.input("q"), k = c.input("k"), o = c.output("o");
  for (std::int64_t row = 0; row < c.call.batch * T * H; ++row) {
    const std::int64_t h = row % H, t = row / H % T, b = row / H / T;
    double all = 0.0, chunk = 0.0;
    for (std::int64_t i = 0; i < dk; ++i) {
      double sum = static_cast<double>(c.input("z")[static_cast<std::size_t>((b * H + h) * dk + i)]);
      double part = 0.0;
      for (std::int64_t s = 0; s <= t; ++s) {
        const double x = static_cast<double>(k[static_cast<std::size_t>(((b * T + s) * H + h) * dk + i)]);
        sum += x;
        if (s >= t / C * C) part += x;
      }
      const double x = static_cast<double>(q[static_cast<std::size_t>(row * dk + i)]);
      all += x * sum;
      chunk += x * part;
    }
    for (std::int64_t j = 0; t >= C && j < dv; ++j)
      o[static_cast<std::size_t>(row * dv + j)] *= static_cast<float>(all / chunk);
  }
};

}  // namespace

std::vector<Mutant> norm_and_gate_mutants() {
  std::vector<Mutant> out;
  add_output_fault<"cpu.l2norm.fused", normed_by<clamped>>(out, "M48", "norm_clamped", "x / max(||x||, eps)");
  add_output_fault<"cpu.l2norm.fused", normed_by<outside>>(out, "M49", "epsilon_outside_root",
                                                           "x / (||x|| + eps)");
  add_output_fault<"cpu.l2norm.fused", normed_by<mean_epsilon>>(out, "M50", "rms_norm",
                                                                "RMSNorm d^-1/2 for the l2 norm");
  add_operator<"cpu.rms_norm.fused", weight_plus_one>(out, "M52", "weight_plus_one",
                                                      "1 + w where w is meant");
  add_operator<"cpu.gated_rms_norm.fused", weight_plus_one>(out, "M52", "weight_plus_one",
                                                            "1 + w on the gated norm");
  add_operator<"cpu.zero_centred_rms_norm.fused", weight_minus_one>(out, "M52", "weight_without_one",
                                                                    "w where 1 + w is meant");
  add_operator<"cpu.zero_centred_rms_norm.fused", weight_plus_one>(out, "M52", "one_added_twice",
                                                                   "2 + w where 1 + w is meant");
  add_operator<"cpu.gated_rms_norm.fused", gate_before_norm>(out, "M53", "gate_before_norm",
                                                             "norm(x silu(z)) instead of norm(x) silu(z)");
  add_output_fault<"cpu.gated_rms_norm.fused", rounded_before_gate>(
      out, "M54", "rounded_before_gate", "the normalised value is rounded to bf16 before weight and gate");
  add_output_fault<"cpu.activation_gates.branchless", bf16_beta>(out, "M55", "bf16_beta",
                                                                 "beta is rounded to bf16");
  add_output_fault<"cpu.activation_gates.branchless", silu_beta>(out, "M56", "silu_beta", "beta = silu(b)");
  add_operator<"cpu.activation_gates.branchless", rate_of_rate>(
      out, "M57", "rate_of_rate", "-exp(A_log) of a value that is -exp(A_log) already");
  add_output_fault<"cpu.activation_gates.branchless", softplus_overflows>(
      out, "M58", "softplus_overflows", "log(1 + exp(x)) without a branch for large x");
  add_operator<"cpu.activation_gates.branchless", bf16_rate>(out, "M59", "bf16_rate",
                                                             "A_log is held in bf16");
  add_output_fault<"cpu.linear_attention_normalised.chunked", normaliser_per_chunk>(
      out, "M60", "normaliser_per_chunk", "the normaliser sums its own chunk alone");
  add_operator<"cpu.linear_attention_normalised.chunked", normaliser_not_carried>(
      out, "M61", "normaliser_not_carried", "the normaliser starts from zero in every call");
  add_output_fault<"cpu.short_convolution.scatter", short_call_keeps_state>(
      out, "M63", "short_call_keeps_state", "T < W - 1 leaves the state as it was");
  add_output_fault<"cpu.short_convolution.scatter", one_vector_of_state>(
      out, "M64", "one_vector_of_state", "one vector is kept instead of W - 1");
  add_operator<"cpu.short_convolution.scatter", taps_reversed>(out, "M65", "taps_reversed",
                                                               "convolution instead of cross-correlation");
  add_operator<"cpu.short_convolution.scatter", state_not_read>(out, "M66", "state_not_read",
                                                                "the fast path, although a state is given");
  add_operator<"cpu.short_convolution.scatter", state_leaks>(
      out, "M67", "state_leaks", "a sequence starts from the inputs of the one before it");
  add_output_fault<"cpu.short_convolution.scatter", activated_state>(
      out, "M68", "activated_state", "outputs are stored in the state instead of inputs");
  return out;
}

}  // namespace samestate::mutants

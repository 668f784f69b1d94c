#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "fuzz/mutants/operators/changed_call.h"
#include "optimized/cpu/rounding.h"

/// Faults of the backward passes of operators: terms that are lost, gradients in the wrong place, and sums over the tokens
/// of a call that forget some of them or are kept in 16 bits.
namespace samestate::mutants {
namespace {

using Call = ChangedCall;
using Outputs = std::map<std::string_view, std::vector<float>>;

/// The outputs of sequence b of a dense call, run alone without its last `lost` tokens.
Outputs sequence_alone(const OperatorKernel& right, const OperatorArguments& call, const Contract& contract,
                       std::int64_t b, std::int64_t lost) {
  OperatorArguments one = call;
  one.batch = 1, one.tokens = call.tokens - lost;
  Outputs out;
  const auto cut = [&](auto& x) {
    if (x.axis == Axis::whole) return;
    std::int64_t size = 1;
    for (std::size_t d = 1; d < x.shape.size(); ++d) size *= x.shape[d];
    x.data += b * size;
    x.shape[0] = 1;
    if (x.axis == Axis::tokens) x.shape[1] = one.tokens;
  };
  for (NamedTensor<const float>& x : one.inputs) cut(x);
  for (NamedTensor<float>& x : one.outputs) {
    cut(x);
    std::int64_t size = 1;
    for (const std::int64_t extent : x.shape) size *= extent;
    x.data = out.emplace(x.name, std::vector<float>(static_cast<std::size_t>(size))).first->second.data();
  }
  (void)right.run(one, contract);
  return out;
}

/// A kernel whose sums over the sequences are made by `add(sum, gradient of one sequence, number of the sequence)`, where
/// each sequence is taken without its last `lost` tokens.
CallFault summed(std::int64_t lost, std::function<void(float& sum, float one, std::int64_t b)> add) {
  return [lost, add = std::move(add)](const OperatorKernel& right, Call& c, const Contract& contract) {
    const Outcome outcome = right.run(c.call, contract);
    for (const NamedTensor<float>& x : c.call.outputs) {
      if (x.axis == Axis::whole) std::ranges::fill(c.output(x.name), 0.0F);
    }
    for (std::int64_t b = 0; b < c.call.batch; ++b) {
      const Outputs one = sequence_alone(right, c.call, contract, b, std::min(lost, c.call.tokens));
      for (const NamedTensor<float>& x : c.call.outputs) {
        if (x.axis != Axis::whole) continue;
        const std::span<float> sum = c.output(x.name);
        for (std::size_t i = 0; i < sum.size(); ++i) add(sum[i], one.at(x.name)[i], b);
      }
    }
    return outcome;
  };
}

void add_first(float& sum, float one, std::int64_t b) {
  if (b == 0) sum = one;
}
void keep_last(float& sum, float one, std::int64_t) { sum = one; }
void add_plainly(float& sum, float one, std::int64_t) { sum += one; }
void add_in_bf16(float& sum, float one, std::int64_t) { sum = cpu::to_bf16(sum + one); }

std::vector<OperatorFault> with_sums(std::vector<OperatorFault> faults) {
  for (OperatorFault& fault : faults_of_sums()) faults.push_back(std::move(fault));
  return faults;
}

/// (mean x^2 + 1e-6)^-1/2 of the row of x from `at` on; of the sum, if not `mean`.
float root_back(Call& c, std::size_t at, bool mean) {
  const auto d = static_cast<std::size_t>(c.width("x"));
  double sum = 0.0;
  for (const float v : c.input("x").subspan(at, d)) sum += static_cast<double>(v) * static_cast<double>(v);
  return static_cast<float>(1.0 / std::sqrt(sum / (mean ? static_cast<double>(d) : 1.0) + 1e-6));
}

/// d.x = r d.y w, without the part along the norm.
void projection_lost(Call& c) {
  const auto d = static_cast<std::size_t>(c.width("x"));
  const bool weighted = c.call.inputs.size() > 2;
  const std::span<float> dy = c.input("d.y"), dx = c.output("d.x");
  for (std::size_t i = 0; i < dx.size(); i += d) {
    const float r = root_back(c, i, weighted);
    for (std::size_t j = 0; j < d; ++j) dx[i + j] = r * dy[i + j] * (weighted ? c.input("weight")[j] : 1.0F);
  }
}
/// The norm without its epsilon: that of x 2^20, whose gradient is 2^-20 of it.
CallFault without_epsilon() {
  return changed([](Call& c) { c.each("x", [](float x) { return x * 0x1p20F; }); },
                 scaled("d.x", [](const Call&) { return 0x1p20F; }));
}
void next_weight_back(Call& c) { rotate(c.input("weight"), 1); }
void weight_and_one(Call& c) {
  c.each("weight", [](float w) { return w + 1.0F; });
}
void weight_less_one(Call& c) {
  c.each("weight", [](float w) { return w - 1.0F; });
}
void gradient_times_weight(Call& c) {
  const std::span<float> w = c.input("weight"), dw = c.output("d.weight");
  for (std::size_t j = 0; j < w.size(); ++j) dw[j] *= w[j];
}
/// Rows get the gradient of the row behind them.
Change next_row(std::string_view output) {
  return [output](Call& c) { rotate(c.output(output), c.width("x")); };
}
Change output_zero(std::string_view output) {
  return [output](Call& c) { std::ranges::fill(c.output(output), 0.0F); };
}
Change copied(std::string_view from, std::string_view to) {
  return [from, to](Call& c) { std::ranges::copy(c.output(from), c.output(to).begin()); };
}
/// The cotangent of the sum goes through the norm.
void sum_before_norm(Call& c) {
  const std::span<float> dy = c.input("d.y"), dsum = c.input("d.sum");
  for (std::size_t i = 0; i < dy.size(); ++i) dy[i] += std::exchange(dsum[i], 0.0F);
}
float silu_slope_back(float z) { return sigmoid(z) * (1.0F + z * (1.0F - sigmoid(z))); }
/// d.z with sigma(z) in place of the derivative of silu.
void slope_is_sigma(Call& c) {
  const std::span<float> z = c.input("z"), dz = c.output("d.z");
  for (std::size_t i = 0; i < dz.size(); ++i) {
    if (const float slope = silu_slope_back(z[i]); std::abs(slope) > 1e-3F) dz[i] *= sigmoid(z[i]) / slope;
  }
}
/// d.z lacks the norm's weight.
void gate_without_weight(Call& c) {
  const std::span<float> w = c.input("weight"), dz = c.output("d.z");
  for (std::size_t i = 0; i < dz.size(); ++i) {
    if (const float weight = w[i % w.size()]; std::abs(weight) > 1e-3F) dz[i] /= weight;
  }
}
/// d.weight = sum of d.y n, without the gate: the kernel sees a gate whose silu is 1.
CallFault weight_without_gate() {
  return [](const OperatorKernel& right, Call& c, const Contract& contract) {
    const Outcome outcome = right.run(c.call, contract);
    OperatorArguments other = c.call;
    Outputs own;
    for (NamedTensor<float>& x : other.outputs)
      x.data = own.emplace(x.name, std::vector<float>(c.output(x.name).size() + 1)).first->second.data();
    c.fill("z", 1.2784645F);
    (void)right.run(other, contract);
    std::copy_n(own.at("d.weight").begin(), c.output("d.weight").size(), c.output("d.weight").begin());
    return outcome;
  };
}

void bias_back_forgotten(Call& c) { c.fill("dt_bias", 0.0F); }
/// d.b = d.beta beta.
void beta_slope_lost(Call& c) {
  const std::span<float> b = c.input("b"), dbeta = c.input("d.beta"), db = c.output("d.b");
  for (std::size_t i = 0; i < db.size(); ++i) db[i] = dbeta[i] * sigmoid(b[i]);
}
/// d.a without the derivative of softplus.
void softplus_slope_lost(Call& c) {
  const std::span<float> dg = c.input("d.g"), da = c.output("d.a"), A_log = c.input("A_log");
  for (std::size_t i = 0; i < da.size(); ++i) da[i] = -dg[i] * std::exp(A_log[i % A_log.size()]);
}
/// The cotangent of a head is that of the next.
void next_head_back(Call& c) {
  each_row(c.input("d.g"), c.width("d.g"), [](std::span<float> row) { rotate(row, 1); });
}

void columns_that_pass_lost(Call& c) {
  const std::int64_t passing = c.at("d") - 2 * c.at("pairs");
  each_row(c.output("d.x"), c.at("d"),
           [passing](std::span<float> head) { std::fill(head.end() - passing, head.end(), 0.0F); });
}

bool has_input(const Call& c, std::string_view name) {
  return std::ranges::any_of(c.call.inputs, [&](const auto& x) { return x.name == name; });
}
void final_cotangent_ignored(Call& c) {
  if (has_input(c, "d.state")) c.fill("d.state", 0.0F);
}
/// The cotangent of the state that is handed on goes to the last tokens only, and what of it reaches into the state that came
/// in is lost.
void short_call_loses_state(Call& c) {
  const std::int64_t T = c.call.tokens, rows = c.at("W") - 1, C = c.at("C");
  if (T >= rows || !has_input(c, "d.state")) return;
  for (std::int64_t b = 0; b < c.call.batch; ++b) {
    for (std::int64_t i = 0; i < (rows - T) * C; ++i) {
      const auto from = static_cast<std::size_t>(b * rows * C + i);
      c.output("d.state")[from + static_cast<std::size_t>(T * C)] -= c.input("d.state")[from];
    }
  }
}
void no_convolution_bias(Call& c) {
  if (c.at("bias") != 0) c.fill("bias", 0.0F);
}
void oldest_tap_without_gradient(Call& c) {
  each_row(c.output("d.kernel"), c.at("W"), [](std::span<float> w) { w[0] = 0.0F; });
}
void gradient_of_the_next_tap(Call& c) {
  each_row(c.output("d.kernel"), c.at("W"), [](std::span<float> w) { rotate(w, 1); });
}
/// The state that came in counts as zero, as its gradient does.
CallFault without_state() { return changed(filled("state", 0.0F), output_zero("d.state")); }

}  // namespace

std::vector<OperatorFault> faults_of_sums() {
  return {{"F", "sum_of_the_first_sequence", "the gradients of weights are those of the first sequence",
           summed(0, add_first)},
          {"F", "sum_of_the_last_sequence", "each sequence overwrites the gradients of weights",
           summed(0, keep_last)},
          {"F", "sum_without_the_last_token", "the gradients of weights lack the last token",
           summed(1, add_plainly)},
          {"F", "sum_in_bf16", "the gradients of weights are added up in bf16", summed(0, add_in_bf16)}};
}

std::vector<Mutant> operator_gradient_mutants() {
  std::vector<Mutant> out;
  const OperatorFault projection{"F", "projection_lost", "d.x lacks the part along the norm",
                                 miswritten(projection_lost)};
  const OperatorFault epsilon{"F", "no_epsilon_back", "epsilon is left out", without_epsilon()};
  const OperatorFault next{"F", "gradient_of_the_next_row", "d.x of a row is that of the next",
                           miswritten(next_row("d.x"))};
  add_faults(out, "cpu.rms_norm.backward.fused",
             with_sums({projection,
                        epsilon,
                        next,
                        {"F", "weight_plus_one", "1 + w where w is meant", misread(weight_and_one)},
                        {"F", "weight_of_the_next_column", "the weight is that of the next column",
                         misread(next_weight_back)},
                        {"F", "gradient_times_weight", "d.weight has the weight as a factor",
                         miswritten(gradient_times_weight)},
                        {"F", "cotangent_ignored", "d.y counts as 1", misread(filled("d.y", 1.0F))}}));
  add_faults(out, "cpu.zero_centred_rms_norm.backward.fused",
             with_sums({epsilon,
                        next,
                        {"M52", "weight_without_one", "w where 1 + w is meant", misread(weight_less_one)},
                        {"M52", "one_added_twice", "2 + w where 1 + w is meant", misread(weight_and_one)}}));
  add_faults(
      out, "cpu.residual_rms_norm.backward.fused",
      with_sums(
          {{"F", "sum_before_norm", "d.sum is added before the norm's backward pass",
            misread(sum_before_norm)},
           {"F", "sum_cotangent_lost", "d.sum counts as zero", misread(filled("d.sum", 0.0F))},
           {"F", "residual_forgotten", "the residual is not added", misread(filled("residual", 0.0F))},
           {"F", "residual_without_gradient", "d.residual is zero", miswritten(output_zero("d.residual"))}}));
  add_faults(
      out, "cpu.gated_rms_norm.backward.fused",
      with_sums(
          {epsilon,
           {"F", "dx_for_dz", "d.z is d.x", miswritten(copied("d.x", "d.z"))},
           {"F", "weight_without_gate", "d.weight lacks silu(z)", weight_without_gate()},
           {"F", "slope_is_sigma", "sigma(z) in place of the derivative of silu", miswritten(slope_is_sigma)},
           {"F", "gate_without_weight", "d.z lacks the norm's weight", miswritten(gate_without_weight)}}));
  add_faults(out, "cpu.gate_first_rms_norm.backward.fused",
             with_sums({{"M53", "norm_before_gate", "the gradient of rms_norm(x) silu(z)",
                         mistaken_for("cpu.gated_rms_norm.backward.fused")},
                        {"F", "slope_is_sigma", "sigma(z) in place of the derivative of silu",
                         miswritten(slope_is_sigma)},
                        {"F", "x_and_gate_exchanged", "x is taken for the gate and the gate for x",
                         misread(exchanged("x", "z"))}}));
  add_faults(out, "cpu.l2norm.backward.fused", {projection, epsilon, next});
  add_faults(
      out, "cpu.activation_gates.backward.branchless",
      with_sums(
          {{"F", "softplus_slope_lost", "d.a lacks sigma(a + dt_bias)", miswritten(softplus_slope_lost)},
           {"F", "beta_slope_lost", "d.b lacks 1 - beta", miswritten(beta_slope_lost)},
           {"F", "rate_for_its_logarithm", "d.A_log is d.dt_bias",
            miswritten(copied("d.dt_bias", "d.A_log"))},
           {"F", "sign_lost", "d.a has the other sign",
            miswritten(scaled("d.a", [](const Call&) { return -1.0F; }))},
           {"F", "no_bias_back", "dt_bias is left out", misread(bias_back_forgotten)},
           {"F", "gate_of_the_next_head", "d.g is that of the next head", misread(next_head_back)}}));
  add_faults(out, "cpu.rotary_embedding.backward.full_width",
             {{"F", "turned_forward", "the cotangent is turned as x is",
               misread(mapped("sine", [](float s) { return -s; }))},
              {"F", "halves_for_interleaved", "pairs are halves where they are interleaved",
               misread(fixed("interleaved", 0))},
              {"F", "columns_that_pass_lost", "columns that do not turn get no gradient",
               miswritten(columns_that_pass_lost)},
              {"F", "angle_of_the_token_before", "angles are those of the token before",
               misread(token_before({"cosine", "sine"}))}});
  add_faults(
      out, "cpu.short_convolution.backward.gather",
      with_sums(
          {{"F", "final_cotangent_ignored", "d.state of the state that is handed on counts as zero",
            misread(final_cotangent_ignored)},
           {"F", "short_call_loses_state", "T < W - 1: d.state does not reach into the state that came in",
            miswritten(short_call_loses_state)},
           {"F", "state_counts_as_zero", "the state that came in is not read and has no gradient",
            without_state()},
           {"F", "taps_reversed", "the taps are taken in the other order", misread(reversed("kernel"))},
           {"F", "oldest_tap_without_gradient", "d.kernel of the oldest tap is zero",
            miswritten(oldest_tap_without_gradient)},
           {"F", "gradient_of_the_next_tap", "d.kernel of a tap is that of the next",
            miswritten(gradient_of_the_next_tap)},
           {"F", "always_activated", "silu where none is asked for", misread(fixed("activation", 1))},
           {"F", "never_activated", "no silu where one is asked for", misread(fixed("activation", 0))},
           {"F", "no_bias_back", "the sums are made again without the bias", misread(no_convolution_bias)}}));
  return out;
}

}  // namespace samestate::mutants

#include <chrono>
#include <cmath>
#include <cstdint>
#include <vector>

#include "optimized/plugin.h"

namespace {

using samestate::Arguments;
using samestate::View;

/// Row (b, t, h) of x [B, T, H, D], times `factor` or, with l2norm, times factor (sum x^2 + 1e-6)^-1/2.
std::vector<float> row(const View<const float, 4>& x, std::int64_t b, std::int64_t t, std::int64_t h,
                       bool l2norm, float factor) {
  std::vector<float> values(static_cast<std::size_t>(x.shape[3]));
  float sum = 0.0F;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = x(b, t, h, i);
    sum += values[i] * values[i];
  }
  if (l2norm) factor /= std::sqrt(sum + 1e-6F);
  for (float& value : values) value *= factor;
  return values;
}

/// One head of one sequence, tokens [begin, end): S <- e^g S + k beta (v - e^g S^T k)^T, o = S^T q scale.
void head(const Arguments& a, std::int64_t b, std::int64_t n, std::int64_t h, std::int64_t begin,
          std::int64_t end) {
  const std::int64_t key_heads = a.q.shape[2];
  const std::int64_t value_heads = a.v.shape[2];
  const bool tiled = a.head_map == samestate::HeadMap::tiled;
  const std::int64_t key_head = tiled ? h % key_heads : h / (value_heads / key_heads);
  const auto dk = static_cast<std::size_t>(a.q.shape[3]);
  const auto dv = static_cast<std::size_t>(a.v.shape[3]);

  std::vector<float> state(dk * dv, 0.0F);  // [dk, dv]; a copy, for final_state may be initial_state
  for (std::size_t i = 0; i < dk * dv && a.initial_state.present(); ++i) {
    state[i] = a.initial_state(n, h, i / dv, i % dv);
  }
  for (std::int64_t t = begin; t < end; ++t) {
    const std::vector<float> q = row(a.q, b, t, key_head, a.l2norm, a.scale);
    const std::vector<float> k = row(a.k, b, t, key_head, a.l2norm, 1.0F);
    const float decay = a.g.present() ? std::exp(a.g(b, t, h)) : 1.0F;
    const float beta = a.beta.present() ? a.beta(b, t, h) : 1.0F;
    for (std::size_t j = 0; j < dv; ++j) {
      float read = 0.0F;
      for (std::size_t i = 0; i < dk; ++i) read += k[i] * (state[i * dv + j] *= decay);
      const float value = a.v(b, t, h, j);
      const float delta = MY_KERNEL_FAULT ? value - beta * read : beta * (value - read);
      float output = 0.0F;
      for (std::size_t i = 0; i < dk; ++i) output += q[i] * (state[i * dv + j] += k[i] * delta);
      a.o(b, t, h, j) = output;
    }
  }
  for (std::size_t i = 0; i < dk * dv && a.final_state.present(); ++i) {
    a.final_state(n, h, i / dv, i % dv) = state[i];
  }
}

samestate::Outcome run(const Arguments& a, const samestate::Contract&) {
  for (std::int64_t n = 0; n < a.sequences(); ++n) {
    const bool packed = a.cu_seqlens.present();
    const std::int64_t begin = packed ? a.cu_seqlens(n) : 0;
    const std::int64_t end = packed ? a.cu_seqlens(n + 1) : a.q.shape[1];
    for (std::int64_t h = 0; h < a.v.shape[2]; ++h) head(a, packed ? 0 : n, n, h, begin, end);
  }
  return {};
}

/// For `samestate bench`, and optional: how long one call takes. A kernel on a device uploads its tensors
/// here, once and as several copies that together exceed its caches, and puts events or a graph around its
/// launches alone; the copies to and from the device then stay outside the time. The outputs are those of the
/// last timed call, and hold poison before it so that a call that writes nothing shows.
samestate::Timing measure(const Arguments& a, const samestate::Contract& contract,
                          const samestate::TimingRequest& request) {
  using Clock = std::chrono::steady_clock;
  samestate::Timing timing;
  timing.how = "clock";
  for (int i = 0; i < request.warm_up; ++i) timing.outcome = run(a, contract);
  double total = 0.0;
  const auto done = [&] {
    const int samples = static_cast<int>(timing.seconds.size());
    return samples >= request.least_samples && (total >= request.seconds || samples >= request.most_samples);
  };
  while (!done()) {
    for (std::int64_t i = 0; i < a.o.size(); ++i) a.o.data[i] = NAN;  // dense, as every output is
    const auto begin = Clock::now();
    timing.outcome = run(a, contract);
    timing.seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    total += timing.seconds.back();
  }
  return timing;
}

/// A system of named tensors: x (mean x^2 + 1e-6)^-1/2 weight. `samestate judge --tensors 'v1 rms_norm
/// form=fused'` says which tensors there are, and of which shape.
samestate::Outcome run_rms_norm(const samestate::OperatorArguments& a, const samestate::Contract&) {
  const auto& x = a.input("x");
  const auto& weight = a.input("weight");
  const auto& y = a.output("y");
  const std::int64_t width = a.parameter("D");
  const std::int64_t rows = a.batch * a.tokens * a.parameter("H");
  for (std::int64_t r = 0; r < rows; ++r) {
    float sum = 0.0F;
    for (std::int64_t i = 0; i < width; ++i) sum += x.data[r * width + i] * x.data[r * width + i];
    const float mean = sum / static_cast<float>(width);
    const float factor = 1.0F / (MY_KERNEL_FAULT ? std::sqrt(mean) + 1e-6F : std::sqrt(mean + 1e-6F));
    for (std::int64_t i = 0; i < width; ++i)
      y.data[r * width + i] = x.data[r * width + i] * factor * weight.data[i];
  }
  return {};
}

}  // namespace

int samestate_plugin_abi() { return samestate::plugin_abi; }

void samestate_plugin_kernels(std::vector<samestate::Kernel>* rows) {
  rows->push_back(
      {"my.gated_delta_rule.recurrent", "gated_delta_rule", "recurrent", "cpu", {"fp32"}, run, measure});
}

void samestate_plugin_operator_kernels(std::vector<samestate::OperatorKernel>* rows) {
  rows->push_back({"my.rms_norm.fused", "rms_norm", "fused", "cpu", {"fp32"}, run_rms_norm});
}

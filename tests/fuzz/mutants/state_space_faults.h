#pragma once

#include <algorithm>
#include <vector>

#include "tests/fuzz/mutants/faults.h"

/// Faults that the scans and the mixers around them share.
namespace samestate::planted {

inline constexpr std::string_view kTokenTensors[] = {"u", "dt", "B", "C", "z", "x", "hidden", "out", "y"};

/// The call on the tokens [begin, begin + n) of its one sequence.
inline OperatorArguments tokens_of(OperatorArguments call, std::int64_t begin, std::int64_t n) {
  const auto cut = [&](auto& tensors) {
    for (auto& tensor : tensors) {
      if (std::ranges::find(kTokenTensors, tensor.name) == std::end(kTokenTensors)) continue;
      tensor.data += begin * tensor.shape.back();
      tensor.shape[1] = n;
    }
  };
  cut(call.inputs);
  cut(call.outputs);
  call.tokens = n;
  return call;
}

/// Every chunk begins from zero instead of what the one before it left.
inline OperatorFault chunks_forget(const char* kernel, std::string_view state) {
  return {"the state lost between chunks", kernel,
          [state](const OperatorKernel& right, Damaged& d, const Contract& contract) {
            if (d.call.batch != 1 || d.call.tokens <= d.call.chunk) return right.run(d.call, contract);
            Outcome outcome;
            for (std::int64_t t = 0; t < d.call.tokens; t += d.call.chunk) {
              outcome = right.run(tokens_of(d.call, t, std::min(d.call.chunk, d.call.tokens - t)), contract);
              d.fill(state, 0.0F);
            }
            return outcome;
          }};
}

/// The state is handed out one token early.
inline OperatorFault early_state(const char* kernel) {
  return {"the state without the last token", kernel,
          [](const OperatorKernel& right, Damaged& d, const Contract& contract) {
            const Outcome outcome = right.run(d.call, contract);
            if (d.call.batch != 1 || d.call.tokens < 1) return outcome;
            return right.run(tokens_of(d.call, 0, d.call.tokens - 1), contract);
          }};
}

inline float softplus_of(float x) { return std::log1p(std::exp(-std::fabs(x))) + std::fmax(x, 0.0F); }

/// softplus twice: what the kernel reads is the step already, less the bias that it will add.
inline void activated_twice(Damaged& d) {
  const std::span<float> bias = d.input("dt_bias");
  d.groups("dt", static_cast<std::int64_t>(bias.size()), [&](std::span<float> row) {
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = softplus_of(row[i] + bias[i]) - bias[i];
  });
}

inline void rotate(std::span<float> x, std::int64_t by) {
  if (std::ssize(x) > by) std::rotate(x.begin(), x.begin() + by, x.end());
}

inline void no_bias(Damaged& d) { d.fill("dt_bias", 0.0F); }
inline void no_skip(Damaged& d) { d.fill("skip", 0.0F); }
inline void other_discretisation(Damaged& d) { d.set("hold", 1 - d.call.parameter("hold")); }
inline void rate_without_exp(Damaged& d) {
  d.each("A_log", [](float a) { return std::log(std::fabs(a) + 1e-3F); });
}
inline void next_rate(Damaged& d) {
  const bool by_head = d.call.input("A_log").shape.size() == 1;
  rotate(d.input("A_log"), by_head ? 1 : d.width("A_log"));
}
inline void taps_reversed(Damaged& d) {
  d.groups("conv1d", d.width("conv1d"), [](std::span<float> taps) { std::ranges::reverse(taps); });
}
inline void no_convolution_bias(Damaged& d) { d.fill("conv1d_bias", 0.0F); }
inline void no_convolution_state(Damaged& d) { d.fill("convolution", 0.0F); }
inline void convolution_state_shifted(Damaged& d) {
  const std::int64_t width = d.call.output("convolution").shape.back();
  const std::span<float> state = d.output("convolution");
  if (d.call.batch == 1) rotate(state, width);
}
inline void convolution_state_activated(Damaged& d) {
  for (float& x : d.output("convolution")) x = x / (1.0F + std::exp(-x));
}

}  // namespace samestate::planted

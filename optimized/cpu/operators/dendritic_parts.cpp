#include "optimized/cpu/operators/dendritic_parts.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "optimized/call.h"
#include "optimized/cpu/operators/tensor.h"

namespace samestate::cpu {

void branch_weights(std::span<const float> logits, std::int64_t shared, std::int64_t routed, float* omega,
                    bool* taken) {
  const auto size = static_cast<std::int64_t>(logits.size());
  std::fill_n(taken, size, false);
  std::fill_n(omega, shared + size, 0.0F);
  float largest = 0.0F;
  for (std::int64_t n = 0; n < routed; ++n) {
    std::int64_t best = -1;
    for (std::int64_t i = 0; i < size; ++i) {
      if (!taken[i] && (best < 0 || logits[i] > logits[best])) best = i;
    }
    taken[best] = true;
    if (n == 0) largest = logits[best];
  }
  float sum = 0.0F;
  for (std::int64_t i = 0; i < size; ++i) {
    if (!taken[i]) continue;
    omega[shared + i] = std::exp(logits[i] - largest);
    sum += omega[shared + i];
  }
  // The weights of shared and of chosen branches each sum to one before the two groups share the token.
  const float parts = (shared > 0 ? 1.0F : 0.0F) + (routed > 0 ? 1.0F : 0.0F);
  for (std::int64_t e = 0; e < shared; ++e) omega[e] = 1.0F / (static_cast<float>(shared) * parts);
  if (routed > 0) {
    const float factor = 1.0F / (sum * parts);
    for (std::int64_t i = 0; i < size; ++i) omega[shared + i] *= factor;
  }
}

Outcome overlap_windows_channels(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t N = call.parameter("N");
  const std::int64_t overlap = call.parameter("O");
  const std::int64_t channels = N * call.parameter("stride") + overlap;
  const std::int64_t stride = N > 1 ? call.parameter("stride") : channels;
  const std::int64_t width = N > 1 ? stride + overlap : channels;
  for_each_task(call.batch, call.threads, [&] {
    return [&, row = std::vector<float>(static_cast<std::size_t>(channels))](std::int64_t b) mutable {
      for (std::int64_t t = 0; t < call.tokens; ++t) {
        const float* x = rows_of(call.input("x"), b).row(t);
        const float* parts = rows_of(call.input("parts"), b).row(t);
        float* windows = rows_of(call.output("windows"), b).row(t);
        for (std::int64_t n = 0; n < N; ++n) std::copy_n(x + n * stride, width, windows + n * width);
        for (std::int64_t c = 0; c < channels; ++c) {
          const std::int64_t first = c < width ? 0 : (c - width) / stride + 1;
          const std::int64_t last = std::min(N - 1, c / stride);
          float sum = 0.0F;
          for (std::int64_t n = first; n <= last; ++n) sum += parts[n * width + c - n * stride];
          row[static_cast<std::size_t>(c)] = sum;
        }
        round_values(row.data(), rows_of(call.output("sum"), b).row(t), channels, contract.output);
      }
    };
  });
  return {};
}

Outcome dendritic_router_chosen(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t H = call.parameter("H");
  const std::int64_t d = call.parameter("d");
  const std::int64_t shared = call.parameter("Es");
  const std::int64_t routed = call.parameter("K");
  const std::int64_t candidates = routed + call.parameter("idle");
  const std::int64_t branches = shared + candidates;
  Block router;
  copy_transposed(rows_of(call.input("router"), 0, false), router);
  for_each_task(call.batch * H, call.threads, [&] {
    return [&, q = Block{}, logits = Block{}](std::int64_t task) mutable {
      const std::int64_t b = task / H;
      const std::int64_t h = task % H;
      const auto taken = std::make_unique<bool[]>(static_cast<std::size_t>(candidates));
      copy(rows_of(call.input("q"), b).columns(h * d, d), q);
      logits.resize(call.tokens, candidates);
      if (candidates > 0) project(q, router, logits, MatrixUnit::of(contract));
      for (std::int64_t t = 0; t < call.tokens; ++t) {
        float* omega = rows_of(call.output("omega"), b).row(t) + h * branches;
        float* mask = rows_of(call.output("mask"), b).row(t) + h * branches;
        branch_weights({logits.row(t), static_cast<std::size_t>(candidates)}, shared, routed, omega,
                       taken.get());
        round_values(omega, omega, branches, contract.output);
        for (std::int64_t e = 0; e < branches; ++e) mask[e] = e < shared || taken[e - shared] ? 1.0F : 0.0F;
      }
    };
  });
  return {};
}

}  // namespace samestate::cpu

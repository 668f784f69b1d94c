#include "optimized/cpu/backward/pointwise.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "optimized/call.h"
#include "optimized/cpu/backward/token_sums.h"
#include "optimized/cpu/operators/layer_parts.h"

namespace samestate::cpu {

Outcome activation_gates_backward_branchless(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t H = call.parameter("H"), tokens = call.batch * call.tokens;
  const float *a = call.input("a").data, *b = call.input("b").data;
  const float *A_log = call.input("A_log").data, *bias = call.input("dt_bias").data;
  const float *dg = call.input("d.g").data, *dbeta = call.input("d.beta").data;
  float *const da = call.output("d.a").data, *const db = call.output("d.b").data;
  TokenSums sums(tokens, 2 * H);  // of d.A_log, then of d.dt_bias
  for_each_task(sums.blocks(), call.threads, [&] {
    return [&](std::int64_t block) {
      const std::int64_t begin = block * TokenSums::kTokens,
                         end = std::min(tokens, begin + TokenSums::kTokens);
      float* const sum = sums.of_block(block);
      for (std::int64_t t = begin; t < end; ++t) {
        for (std::int64_t h = 0; h < H; ++h) {
          const std::int64_t at = t * H + h;
          const float rate = -std::exp(A_log[h]), x = a[at] + bias[h], beta = layer::logistic(b[at]);
          da[at] = dg[at] * rate * layer::logistic(x);
          db[at] = dbeta[at] * beta * (1.0F - beta);
          sum[h] += dg[at] * (rate * layer::softplus(x));
          sum[H + h] += da[at];
        }
        round_values(da + t * H, da + t * H, H, contract.output);
        round_values(db + t * H, db + t * H, H, contract.output);
      }
    };
  });
  std::vector<float> both(static_cast<std::size_t>(2 * H));
  sums.write(both.data(), Format::fp32);
  std::copy_n(both.begin(), H, call.output("d.A_log").data);
  std::copy_n(both.begin() + H, H, call.output("d.dt_bias").data);
  return {};
}

Outcome rotary_embedding_backward_full_width(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t H = call.parameter("H"), d = call.parameter("d"), pairs = call.parameter("pairs");
  const bool interleaved = call.parameter("interleaved") != 0;
  const float *dy = call.input("d.y").data, *cosine = call.input("cosine").data,
              *sine = call.input("sine").data;
  float* const dx = call.output("d.x").data;
  for_each_task(call.batch * call.tokens, call.threads, [&] {
    return [&](std::int64_t token) {
      for (std::int64_t h = 0; h < H; ++h) {
        const float* const from = dy + (token * H + h) * d;
        float* const to = dx + (token * H + h) * d;
        std::copy_n(from, d, to);
        for (std::int64_t i = 0; i < pairs; ++i) {
          const std::int64_t first = interleaved ? 2 * i : i, second = interleaved ? first + 1 : i + pairs;
          const float cos = cosine[token * pairs + i], sin = sine[token * pairs + i];
          to[first] = from[first] * cos + from[second] * sin;
          to[second] = from[second] * cos - from[first] * sin;
        }
        round_values(to, to, d, contract.output);
      }
    };
  });
  return {};
}

}  // namespace samestate::cpu

#include "optimized/cpu/operators/activation_gates.h"

#include "optimized/call.h"
#include "optimized/cpu/operators/layer_parts.h"
#include "optimized/cpu/operators/tensor.h"

namespace samestate::cpu {

Outcome activation_gates_branchless(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t H = call.parameter("H");
  std::vector<float> rate(call.input("A_log").data, call.input("A_log").data + H);
  for (float& x : rate) x = -std::exp(x);
  const float* bias = call.input("dt_bias").data;
  for_each_task(call.batch, call.threads, [&] {
    return [&](std::int64_t b) {
      const auto a = rows_of(call.input("a"), b);
      const auto logits = rows_of(call.input("b"), b);
      const auto g = rows_of(call.output("g"), b);
      const auto beta = rows_of(call.output("beta"), b);
      for (std::int64_t t = 0; t < call.tokens; ++t) {
        for (std::int64_t h = 0; h < H; ++h) {
          g.row(t)[h] = rate[static_cast<std::size_t>(h)] * layer::softplus(a.row(t)[h] + bias[h]);
          beta.row(t)[h] = layer::logistic(logits.row(t)[h]);
        }
        round_values(g.row(t), g.row(t), H, contract.output);
        round_values(beta.row(t), beta.row(t), H, contract.output);
      }
    };
  });
  return {};
}

}  // namespace samestate::cpu

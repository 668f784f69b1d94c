#include "optimized/cpu/operators/test_time_training.h"

#include <vector>

#include "optimized/call.h"
#include "optimized/cpu/operators/tensor.h"

namespace samestate::cpu {
namespace {

/// Computes the state of every token with the step `beta(eta, |k|^2)`.
template <class Beta>
Outcome steps(const OperatorArguments& call, const Contract& contract, const Beta& beta) {
  const std::int64_t T = call.tokens;
  const std::int64_t dk = call.parameter("dk");
  const std::int64_t dv = call.parameter("dv");
  for_each_task(call.batch * T, call.threads, [&] {
    return [&, u = std::vector<float>{}, row = std::vector<float>{}](std::int64_t task) mutable {
      const std::int64_t b = task / T;
      const std::int64_t t = task % T;
      const auto S = rows_of(call.input("S"), b).rows(t * dk, dk);
      const auto out = rows_of(call.output("S_next"), b).rows(t * dk, dk);
      const float* k = rows_of(call.input("k"), b).row(t);
      const float* v = rows_of(call.input("v"), b).row(t);
      u.assign(static_cast<std::size_t>(dv), 0.0F);
      row.resize(static_cast<std::size_t>(dv));
      float length = 0.0F;
      for (std::int64_t l = 0; l < dk; ++l) {
        length += k[l] * k[l];
        for (std::int64_t c = 0; c < dv; ++c) u[c] += k[l] * S.row(l)[c];
      }
      const float strength = beta(*rows_of(call.input("eta"), b).row(t), length);
      for (std::int64_t c = 0; c < dv; ++c) u[c] = strength * (v[c] - u[c]);
      for (std::int64_t l = 0; l < dk; ++l) {
        for (std::int64_t c = 0; c < dv; ++c) row[c] = S.row(l)[c] + k[l] * u[c];
        round_values(row.data(), out.row(l), dv, contract.output);
      }
    };
  });
  return {};
}

}  // namespace

Outcome gradient_steps(const OperatorArguments& call, const Contract& contract) {
  return steps(call, contract, [](float eta, float) { return eta; });
}

Outcome proximal_steps(const OperatorArguments& call, const Contract& contract) {
  return steps(call, contract, [](float eta, float length) { return eta / (1.0F + eta * length); });
}

}  // namespace samestate::cpu

#include "optimized/cpu/operators/norms.h"

#include <cmath>

#include "optimized/call.h"
#include "optimized/cpu/operators/layer_parts.h"
#include "optimized/cpu/operators/tensor.h"

namespace samestate::cpu {
namespace {

/// Sums in eight partial sums, one per lane.
float sum_of_squares(const float* x, std::int64_t count) {
  Lanes sums = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Lanes values;
    load(values, x + i);
    fuse(sums, values, values);
  }
  float sum = 0.0F;
  for (; i < count; ++i) sum += x[i] * x[i];
  for (std::int64_t lane = 0; lane < kLanes; ++lane) sum += sums[lane];
  return sum;
}

/// Runs `row(i, y)` on every row i of the batch, y [D] in fp32, and rounds y into the output.
template <class Row>
Outcome each_row(const OperatorArguments& call, const Contract& contract, const Row& row) {
  const std::int64_t D = call.parameter("D");
  const std::int64_t H = call.parameter("H");
  const NamedTensor<float>& out = call.output("y");
  for_each_task(call.batch * call.tokens, call.threads, [&] {
    return [&, y = std::vector<float>(static_cast<std::size_t>(D))](std::int64_t token) mutable {
      for (std::int64_t i = token * H; i < (token + 1) * H; ++i) {
        row(i * D, y.data());
        round_values(y.data(), out.data + i * D, D, contract.output);
      }
    };
  });
  return {};
}

}  // namespace

void normalise_row(const float* x, std::int64_t count, float divisor, float* y) {
  const float inverse = 1.0F / std::sqrt(sum_of_squares(x, count) / divisor + 1e-6F);
  for (std::int64_t j = 0; j < count; ++j) y[j] = x[j] * inverse;
}

Outcome rms_norm_fused(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t D = call.parameter("D");
  const float* x = call.input("x").data;
  const float* weight = call.input("weight").data;
  return each_row(call, contract, [&](std::int64_t at, float* y) {
    normalise_row(x + at, D, static_cast<float>(D), y);
    for (std::int64_t j = 0; j < D; ++j) y[j] *= weight[j];
  });
}

Outcome zero_centred_rms_norm_fused(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t D = call.parameter("D");
  const float* x = call.input("x").data;
  const float* weight = call.input("weight").data;
  return each_row(call, contract, [&](std::int64_t at, float* y) {
    normalise_row(x + at, D, static_cast<float>(D), y);
    for (std::int64_t j = 0; j < D; ++j) y[j] *= 1.0F + weight[j];
  });
}

Outcome residual_rms_norm_fused(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t D = call.parameter("D");
  const float* x = call.input("x").data;
  const float* residual = call.input("residual").data;
  const float* weight = call.input("weight").data;
  float* sum = call.output("sum").data;
  return each_row(call, contract, [&](std::int64_t at, float* y) {
    for (std::int64_t j = 0; j < D; ++j) y[j] = x[at + j] + residual[at + j];
    round_values(y, sum + at, D, contract.output);
    normalise_row(y, D, static_cast<float>(D), y);
    for (std::int64_t j = 0; j < D; ++j) y[j] *= 1.0F + weight[j];
  });
}

Outcome gated_rms_norm_fused(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t D = call.parameter("D");
  const float* x = call.input("x").data;
  const float* z = call.input("z").data;
  const float* weight = call.input("weight").data;
  return each_row(call, contract, [&](std::int64_t at, float* y) {
    normalise_row(x + at, D, static_cast<float>(D), y);
    for (std::int64_t j = 0; j < D; ++j) y[j] *= weight[j] * layer::silu(z[at + j]);
  });
}

Outcome gate_first_rms_norm_fused(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t D = call.parameter("D");
  const float* x = call.input("x").data;
  const float* z = call.input("z").data;
  const float* weight = call.input("weight").data;
  return each_row(call, contract, [&](std::int64_t at, float* y) {
    for (std::int64_t j = 0; j < D; ++j) y[j] = x[at + j] * layer::silu(z[at + j]);
    normalise_row(y, D, static_cast<float>(D), y);
    for (std::int64_t j = 0; j < D; ++j) y[j] *= weight[j];
  });
}

Outcome l2norm_fused(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t D = call.parameter("D");
  const float* x = call.input("x").data;
  return each_row(call, contract, [&](std::int64_t at, float* y) { normalise_row(x + at, D, 1.0F, y); });
}

}  // namespace samestate::cpu

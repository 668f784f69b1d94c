#include "optimized/cpu/backward/norms.h"

#include <cmath>
#include <string_view>
#include <vector>

#include "optimized/call.h"
#include "optimized/cpu/backward/reverse_norm.h"
#include "optimized/cpu/backward/token_sums.h"
#include "optimized/cpu/operators/layer_parts.h"
#include "optimized/cpu/operators/norms.h"

namespace samestate::cpu {
namespace {

/// sigma(z) (1 + z (1 - sigma(z))), the derivative of silu.
float silu_slope(float z) {
  const float sigma = layer::logistic(z);
  return sigma * (1.0F + z * (1.0F - sigma));
}

/// Runs `each(row, at, weights)` on all rows, where `at` is the first element of a row in tensors of rows, and `weights` the
/// sums of its block of tokens; then writes d.weight.
template <class Each>
Outcome each_row_back(const OperatorArguments& call, const Each& each) {
  const std::int64_t D = call.parameter("D"), H = call.parameter("H"), tokens = call.batch * call.tokens;
  TokenSums weights(tokens, D);
  for_each_task(weights.blocks(), call.threads, [&] {
    return [&, row = ReverseNormRow(D)](std::int64_t block) mutable {
      const std::int64_t end = std::min(tokens, (block + 1) * TokenSums::kTokens) * H;
      for (std::int64_t i = block * TokenSums::kTokens * H; i < end; ++i)
        each(row, i * D, weights.of_block(block));
    };
  });
  if (const NamedTensor<float>* to = call.tap("d.weight"); to != nullptr)
    weights.write(to->data, Format::fp32);
  return {};
}

/// The norm with the weight w + `shift`.
Outcome reverse_plain(const OperatorArguments& call, const Contract& contract, float shift) {
  const std::int64_t D = call.parameter("D");
  const float *x = call.input("x").data, *w = call.input("weight").data, *dy = call.input("d.y").data;
  float* const dx = call.output("d.x").data;
  return each_row_back(call, [&](ReverseNormRow& row, std::int64_t at, float* dw) {
    std::copy_n(x + at, D, row.x.data());
    for (std::int64_t j = 0; j < D; ++j) row.dn[ReverseNormRow::size(j)] = dy[at + j] * (w[j] + shift);
    reverse_norm(row, D, static_cast<float>(D));
    for (std::int64_t j = 0; j < D; ++j) dw[j] += dy[at + j] * row.n[ReverseNormRow::size(j)];
    round_values(row.dx.data(), dx + at, D, contract.output);
  });
}

}  // namespace

Outcome rms_norm_backward_fused(const OperatorArguments& call, const Contract& contract) {
  return reverse_plain(call, contract, 0.0F);
}

Outcome zero_centred_rms_norm_backward_fused(const OperatorArguments& call, const Contract& contract) {
  return reverse_plain(call, contract, 1.0F);
}

Outcome residual_rms_norm_backward_fused(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t D = call.parameter("D");
  const float *x = call.input("x").data, *residual = call.input("residual").data;
  const float *w = call.input("weight").data, *dy = call.input("d.y").data, *dsum = call.input("d.sum").data;
  float *const dx = call.output("d.x").data, *const dresidual = call.output("d.residual").data;
  return each_row_back(call, [&](ReverseNormRow& row, std::int64_t at, float* dw) {
    for (std::int64_t j = 0; j < D; ++j) {
      row.x[ReverseNormRow::size(j)] = x[at + j] + residual[at + j];
      row.dn[ReverseNormRow::size(j)] = dy[at + j] * (1.0F + w[j]);
    }
    round_values(row.x.data(), row.x.data(), D, contract.output);
    reverse_norm(row, D, static_cast<float>(D));
    for (std::int64_t j = 0; j < D; ++j) {
      dw[j] += dy[at + j] * row.n[ReverseNormRow::size(j)];
      row.dx[ReverseNormRow::size(j)] += dsum[at + j];
    }
    round_values(row.dx.data(), dx + at, D, contract.output);
    std::copy_n(dx + at, D, dresidual + at);
  });
}

Outcome gated_rms_norm_backward_fused(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t D = call.parameter("D");
  const float *x = call.input("x").data, *z = call.input("z").data;
  const float *w = call.input("weight").data, *dy = call.input("d.y").data;
  float *const dx = call.output("d.x").data, *const dz = call.output("d.z").data;
  return each_row_back(call, [&](ReverseNormRow& row, std::int64_t at, float* dw) {
    std::copy_n(x + at, D, row.x.data());
    for (std::int64_t j = 0; j < D; ++j)
      row.dn[ReverseNormRow::size(j)] = dy[at + j] * layer::silu(z[at + j]) * w[j];
    reverse_norm(row, D, static_cast<float>(D));
    round_values(row.dx.data(), dx + at, D, contract.output);
    for (std::int64_t j = 0; j < D; ++j) {
      const float n = row.n[ReverseNormRow::size(j)];
      dw[j] += dy[at + j] * layer::silu(z[at + j]) * n;
      row.dx[ReverseNormRow::size(j)] = dy[at + j] * (n * w[j]) * silu_slope(z[at + j]);
    }
    round_values(row.dx.data(), dz + at, D, contract.output);
  });
}

Outcome gate_first_rms_norm_backward_fused(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t D = call.parameter("D");
  const float *x = call.input("x").data, *z = call.input("z").data;
  const float *w = call.input("weight").data, *dy = call.input("d.y").data;
  float *const dx = call.output("d.x").data, *const dz = call.output("d.z").data;
  return each_row_back(call, [&](ReverseNormRow& row, std::int64_t at, float* dw) {
    for (std::int64_t j = 0; j < D; ++j) {
      row.x[ReverseNormRow::size(j)] = x[at + j] * layer::silu(z[at + j]);
      row.dn[ReverseNormRow::size(j)] = dy[at + j] * w[j];
    }
    reverse_norm(row, D, static_cast<float>(D));
    for (std::int64_t j = 0; j < D; ++j) {
      const float du = row.dx[ReverseNormRow::size(j)];
      dw[j] += dy[at + j] * row.n[ReverseNormRow::size(j)];
      row.dx[ReverseNormRow::size(j)] = du * layer::silu(z[at + j]);
      row.dn[ReverseNormRow::size(j)] = du * x[at + j] * silu_slope(z[at + j]);
    }
    round_values(row.dx.data(), dx + at, D, contract.output);
    round_values(row.dn.data(), dz + at, D, contract.output);
  });
}

Outcome l2norm_backward_fused(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t D = call.parameter("D");
  const float *x = call.input("x").data, *dy = call.input("d.y").data;
  float* const dx = call.output("d.x").data;
  return each_row_back(call, [&](ReverseNormRow& row, std::int64_t at, float*) {
    const float inverse = 1.0F / std::sqrt(inner_product(x + at, x + at, D) + 1e-6F);
    for (std::int64_t j = 0; j < D; ++j) row.n[ReverseNormRow::size(j)] = x[at + j] * inverse;
    round_values(row.n.data(), row.n.data(), D, contract.output);
    const float along = inner_product(row.n.data(), dy + at, D);
    for (std::int64_t j = 0; j < D; ++j)
      row.dx[ReverseNormRow::size(j)] = inverse * (dy[at + j] - along * row.n[ReverseNormRow::size(j)]);
    round_values(row.dx.data(), dx + at, D, contract.output);
  });
}

}  // namespace samestate::cpu

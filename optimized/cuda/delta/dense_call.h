#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "optimized/call.h"
#include "optimized/cuda/delta/chunk_dense_table.h"
#include "optimized/cuda/delta/chunk_mma_dense_generic.cuh"
#include "optimized/cuda/delta/dense_parameters.cuh"
#include "optimized/cuda/delta/token_dense_table.h"
#include "optimized/cuda/host/operands.h"
#include "optimized/kernel.h"

/// The host side of a call: it refuses unsupported calls, and converts tensors from strided fp32 views to
/// dense operands and back. It needs no device.
namespace samestate::cuda {

/// The tensors of a call, dense and in the order of Parameters; absent ones are empty.
template <class Operand, class State = float>
struct Packed {
  Parameters<Operand, State> parameters;  ///< sizes and settings; no pointers
  std::vector<Operand> q, k, v;
  std::vector<float> g, beta;
  std::vector<State> initial_state;
  std::vector<std::int64_t> cu_seqlens;
};

template <class To, std::size_t Rank>
[[nodiscard]] std::vector<To> dense(const View<const float, Rank>& view) {
  std::vector<To> values;
  if (!view.present()) return values;
  values.reserve(static_cast<std::size_t>(view.size()));
  if (view.stride == row_major(view.data, view.shape).stride) {
    for (std::int64_t i = 0; i < view.size(); ++i) values.push_back(stored<To>(view.data[i]));
  } else if constexpr (Rank == 3) {
    for (std::int64_t b = 0; b < view.shape[0]; ++b)
      for (std::int64_t t = 0; t < view.shape[1]; ++t)
        for (std::int64_t h = 0; h < view.shape[2]; ++h) values.push_back(stored<To>(view(b, t, h)));
  } else {
    for (std::int64_t b = 0; b < view.shape[0]; ++b)
      for (std::int64_t t = 0; t < view.shape[1]; ++t)
        for (std::int64_t h = 0; h < view.shape[2]; ++h)
          for (std::int64_t d = 0; d < view.shape[3]; ++d) values.push_back(stored<To>(view(b, t, h, d)));
  }
  return values;
}

template <class From>
void scatter(const std::vector<From>& values, const View<float, 4>& view) {
  std::size_t next = 0;
  for (std::int64_t b = 0; b < view.shape[0]; ++b)
    for (std::int64_t t = 0; t < view.shape[1]; ++t)
      for (std::int64_t h = 0; h < view.shape[2]; ++h)
        for (std::int64_t d = 0; d < view.shape[3]; ++d) view(b, t, h, d) = loaded(values[next++]);
}

/// Writes values to o, except to rows that belong to no packed sequence and so not to the call.
template <class From>
void scatter_tokens(const std::vector<From>& values, const Arguments& a) {
  if (!a.cu_seqlens.present()) return scatter(values, a.o);
  const std::int64_t first = a.cu_seqlens(0);
  const std::int64_t end = a.cu_seqlens(a.sequences());
  const std::int64_t row = a.o.shape[2] * a.o.shape[3];
  scatter(std::vector<From>(values.begin() + first * row, values.begin() + end * row),
          a.o.slice(1, first, end));
}

/// `sizes` is the result of cpu::checked_sizes.
template <class Operand, class State = float>
[[nodiscard]] Packed<Operand, State> pack(const Arguments& a, const cpu::Sizes& sizes,
                                          const Contract& contract) {
  Packed<Operand, State> packed;
  Parameters<Operand, State>& p = packed.parameters;
  p.sequences = sizes.sequences, p.T = sizes.tokens, p.Hk = sizes.key_heads, p.Hv = sizes.value_heads;
  p.dk = static_cast<int>(sizes.dk), p.dv = static_cast<int>(sizes.dv);
  p.scale = a.scale;
  p.tiled_heads = a.head_map == HeadMap::tiled;
  p.l2norm = a.l2norm;
  p.round_qk = contract.qk == Format::bf16;
  p.ex2 = contract.exponential == Exponential::ex2;
  // No sequence is longer than T, so no chunk is either.
  p.chunk = static_cast<int>(std::clamp<std::int64_t>(a.chunk, 1, std::max<std::int64_t>(sizes.tokens, 1)));
  packed.q = dense<Operand>(a.q);
  packed.k = dense<Operand>(a.k);
  packed.v = dense<Operand>(a.v);
  packed.g = dense<float>(a.g);
  packed.beta = dense<float>(a.beta);
  packed.initial_state = dense<State>(a.initial_state);
  if (a.cu_seqlens.present()) {
    for (std::int64_t n = 0; n < a.cu_seqlens.shape[0]; ++n) packed.cu_seqlens.push_back(a.cu_seqlens(n));
  }
  return packed;
}

/// The index in recurrent_rows() of the row that evaluates the call; the number of rows if none keeps the
/// contract.
[[nodiscard]] inline std::size_t recurrent_row(const Arguments& a, const Contract& contract, bool delta) {
  return choose(recurrent_rows(), shape_of(a, cpu::longest_sequence(a, cpu::checked_sizes(a)), delta),
                contract);
}

/// The same for chunked_rows().
[[nodiscard]] inline std::size_t chunked_row(const Arguments& a, const Contract& contract, bool delta) {
  return choose(chunked_rows(), shape_of(a, cpu::longest_sequence(a, cpu::checked_sizes(a)), delta),
                contract);
}

/// Kernel::limits of the rows, which `refusal` enforces.
[[nodiscard]] inline std::vector<std::string> recurrent_limits() {
  return {"dk <= " + std::to_string(kKeyLimit)};
}
[[nodiscard]] inline std::vector<std::string> chunked_limits() {
  return {"dk <= " + std::to_string(kKeyLimit), "chunk in 1.." + std::to_string(kChunkLimit),
          "dk <= " + std::to_string(kPrefillKeys) + " if contract = bf16_fused",
          "dk <= " + std::to_string(kPrefillKeys) + " if contract = tf32_fused",
          "dk <= " + std::to_string(kPrefillKeys) + " if contract = fp32_fused"};
}

/// The reason why the device kernels do not run this call, naming the limit; empty if they do.
[[nodiscard]] inline std::string refusal(const cpu::System& system, bool chunked, const Arguments& a,
                                         const Contract& contract) {
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  if (std::string reason = cpu::unsupported_reason(system, a, contract); !reason.empty()) return reason;
  const auto keeps = [&](const DispatchRow& row) { return row.keeps(contract); };
  if (chunked && std::none_of(chunked_rows().begin(), chunked_rows().end(), keeps))
    return "contract " + contract.name + ": the chunked CUDA kernels keep " + kept(chunked_rows()) +
           "; choose one of them";
  if (a.q.shape[3] > kKeyLimit) {
    return "dk=" + number(a.q.shape[3]) + ": the CUDA kernels take dk up to " + number(kKeyLimit);
  }
  if (chunked && (a.chunk < 1 || a.chunk > kChunkLimit)) {
    return "chunk=" + number(a.chunk) + ": the CUDA kernels take chunks of 1 to " + number(kChunkLimit);
  }
  if (chunked && chunked_row(a, contract, system.delta) == chunked_rows().size()) {
    return "dk=" + number(a.q.shape[3]) + ": contract " + contract.name + " takes dk up to " +
           number(kPrefillKeys) + " here; contract " + (contract.output == Format::bf16 ? "bf16" : "fp32") +
           " takes more";
  }
  if (chunked && a.l2norm && contract.norm == Norm::operand && contract.output == Format::bf16 &&
      contract.qk != Format::bf16) {
    return "l2norm under contract " + contract.name +
           ": tensor cores round normalised q and k to bf16; declare qk = bf16";
  }
  if (!chunked && recurrent_row(a, contract, system.delta) == recurrent_rows().size())
    return "contract " + contract.name + ": the recurrent CUDA kernels keep " + kept(recurrent_rows()) +
           "; choose one of them";
  return {};
}

}  // namespace samestate::cuda

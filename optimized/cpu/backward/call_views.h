#pragma once

#include <cstdint>
#include <string_view>

#include "optimized/operator_kernel.h"

/// The tensors of a call, of any strides, and the sequences in it, for kernels whose sums are over all sequences.
namespace samestate::cpu {

/// A tensor as a view of that rank.
template <std::size_t Rank, class T>
[[nodiscard]] View<T, Rank> view_of(const NamedTensor<T>& x) {
  View<T, Rank> view{x.data, {}, {}};
  std::int64_t step = 1;
  for (std::size_t d = Rank; d-- > 0; step *= x.shape[d]) {
    view.shape[d] = x.shape[d];
    view.stride[d] = x.stride.empty() ? step : x.stride[d];
  }
  return view;
}

/// The input of that name; absent if the call has none.
template <std::size_t Rank>
[[nodiscard]] View<const float, Rank> given(const OperatorArguments& call, std::string_view name) {
  for (const NamedTensor<const float>& x : call.inputs) {
    if (x.name == name) return view_of<Rank>(x);
  }
  return {};
}

/// The number of sequences, in a batch or packed.
[[nodiscard]] inline std::int64_t sequences_of_call(const OperatorArguments& call) {
  return call.cu_seqlens.present() ? call.cu_seqlens.shape[0] - 1 : call.batch;
}

/// The tokens [begin, begin + count) of row `batch` of the call.
struct Tokens {
  std::int64_t batch, begin, count;
};

[[nodiscard]] inline Tokens tokens_of_sequence(const OperatorArguments& call, std::int64_t n) {
  if (!call.cu_seqlens.present()) return {n, 0, call.tokens};
  return {0, call.cu_seqlens(n), call.cu_seqlens(n + 1) - call.cu_seqlens(n)};
}

}  // namespace samestate::cpu

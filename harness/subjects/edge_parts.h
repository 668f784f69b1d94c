#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "harness/run/sixteen_bit.h"
#include "harness/subjects/edge.h"

/// Helpers for laying out both kinds of calls.
namespace samestate::edge_detail {

/// For systems with a pool: the tensor that says which slot holds a request's state, the tensor of states,
/// and the size that counts the slots.
inline constexpr std::string_view kSlot = "slot", kPool = "pool", kSlots = "P";

/// The dtype of a tensor of a call for which the contract has that format.
[[nodiscard]] inline Dtype dtype_for(const Conventions& conventions, std::string_view tensor,
                                     Format contract) {
  const auto found = conventions.dtypes.find(tensor);
  return found != conventions.dtypes.end() ? found->second : dtype_of(contract);
}

[[nodiscard]] inline std::vector<std::int64_t> row_major_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> out(shape.size());
  std::int64_t step = 1;
  for (std::size_t d = shape.size(); d-- > 0; step *= shape[d]) out[d] = step;
  return out;
}

/// Calls f(first byte of the tensor's memory, bytes) for each unused slot.
template <class F>
void each_null_row(const EdgeTensor& x, F&& f) {
  const std::size_t size = size_of(x.dtype);
  for (std::int64_t i = 0; i < x.nobodys.count; ++i)
    f(static_cast<std::size_t>(x.nobodys.first + i * x.nobodys.step) * size,
      static_cast<std::size_t>(x.nobodys.size) * size);
}

}  // namespace samestate::edge_detail

#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "harness/run/sixteen_bit.h"
#include "harness/subjects/edge.h"

/// What both kinds of calls need to be laid out.
namespace samestate::edge_detail {

/// Of systems with a pool: which slot of it a request's state lies in, the states, and the size that says how many there are.
inline constexpr std::string_view kSlot = "slot", kPool = "pool", kSlots = "P";

/// Of a tensor of a call, where the contract has it in that format.
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

/// Calls f(first byte of the tensor's memory, bytes) for each slot that is nobody's.
template <class F>
void each_null_row(const EdgeTensor& x, F&& f) {
  const std::size_t size = size_of(x.dtype);
  for (std::int64_t i = 0; i < x.nobodys.count; ++i)
    f(static_cast<std::size_t>(x.nobodys.first + i * x.nobodys.step) * size,
      static_cast<std::size_t>(x.nobodys.size) * size);
}

}  // namespace samestate::edge_detail

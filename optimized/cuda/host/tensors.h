#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "optimized/cuda/host/operands.h"
#include "optimized/operator_kernel.h"

/// The host side of a call of named tensors: conversion from strided fp32 to dense operands and back. It
/// needs no device.
namespace samestate::cuda {

/// Calls `visit(element)` with the offset of each element of a tensor, in row-major order.
template <class T, class Visit>
void each_element(const NamedTensor<T>& tensor, Visit&& visit) {
  const std::size_t rank = tensor.shape.size();
  std::vector<std::int64_t> step = tensor.stride;
  if (step.empty()) {
    step.assign(rank, 1);
    for (std::size_t d = rank; d-- > 1;) step[d - 1] = step[d] * tensor.shape[d];
  }
  std::vector<std::int64_t> at(rank, 0);
  for (const std::int64_t extent : tensor.shape) {
    if (extent == 0) return;
  }
  for (std::int64_t offset = 0;;) {
    visit(offset);
    std::size_t d = rank;
    while (d-- > 0) {
      offset += step[d];
      if (++at[d] < tensor.shape[d]) break;
      offset -= step[d] * tensor.shape[d];
      at[d] = 0;
      if (d == 0) return;
    }
    if (rank == 0) return;
  }
}

template <class Operand>
[[nodiscard]] std::vector<Operand> dense(const NamedTensor<const float>& tensor) {
  std::vector<Operand> values;
  each_element(tensor, [&](std::int64_t i) { values.push_back(stored<Operand>(tensor.data[i])); });
  return values;
}

template <class Operand>
void scatter(const std::vector<Operand>& values, const NamedTensor<float>& to) {
  std::size_t next = 0;
  each_element(to, [&](std::int64_t i) { to.data[i] = loaded(values[next++]); });
}

}  // namespace samestate::cuda

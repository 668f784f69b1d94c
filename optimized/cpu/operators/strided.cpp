#include "optimized/cpu/operators/strided.h"

#include <deque>

namespace samestate::cpu {
namespace {

/// Calls visit(element of the tensor) in row-major order.
template <class T, class Visit>
void each(const NamedTensor<T>& x, Visit&& visit, std::size_t d = 0, std::int64_t offset = 0) {
  if (d == x.shape.size()) return visit(x.data[offset]);
  for (std::int64_t i = 0; i < x.shape[d]; ++i) each(x, visit, d + 1, offset + i * x.stride[d]);
}

std::size_t size_of(const std::vector<std::int64_t>& shape) {
  std::int64_t size = 1;
  for (const std::int64_t extent : shape) size *= extent;
  return static_cast<std::size_t>(size);
}

}  // namespace

std::function<Outcome(const OperatorArguments&, const Contract&)> with_dense_copies(
    Outcome (*run)(const OperatorArguments&, const Contract&)) {
  return [run](const OperatorArguments& call, const Contract& contract) {
    OperatorArguments dense = call;
    std::deque<std::vector<float>> copies;
    for (NamedTensor<const float>& x : dense.inputs) {
      if (x.stride.empty()) continue;
      std::vector<float>& copy = copies.emplace_back();
      copy.reserve(size_of(x.shape));
      each(x, [&](float value) { copy.push_back(value); });
      x.data = copy.data();
      x.stride.clear();
    }
    for (NamedTensor<float>& x : dense.outputs) {
      if (x.stride.empty()) continue;
      x.data = copies.emplace_back(size_of(x.shape)).data();
      x.stride.clear();
    }
    const Outcome outcome = run(dense, contract);
    if (outcome.kind != Outcome::Kind::ran) return outcome;
    for (std::size_t i = 0; i < call.outputs.size(); ++i) {
      if (call.outputs[i].stride.empty()) continue;
      const float* from = dense.outputs[i].data;
      each(call.outputs[i], [&](float& to) { to = *from++; });
    }
    return outcome;
  };
}

}  // namespace samestate::cpu

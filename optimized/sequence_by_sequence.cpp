#include "optimized/sequence_by_sequence.h"

#include <cstddef>
#include <string>
#include <utility>

namespace samestate {
namespace {

/// Returns the part of a tensor that belongs to sequence n, which holds the tokens [begin, end).
template <class T>
NamedTensor<T> part_of(NamedTensor<T> x, std::int64_t n, std::int64_t begin, std::int64_t end) {
  if (x.axis == Axis::whole) return x;
  if (x.stride.empty()) {
    x.stride.assign(x.shape.size(), 1);
    for (std::size_t d = x.shape.size(); d-- > 1;) x.stride[d - 1] = x.stride[d] * x.shape[d];
  }
  if (x.axis == Axis::state || x.axis == Axis::request) {
    x.data += n * x.stride[0];
    x.shape[0] = 1;
    return x;
  }
  if (begin > end || begin < 0 || end > x.shape[1])
    throw Error("cu_seqlens of the call are not ascending within the tokens of " + std::string(x.name));
  x.data += begin * x.stride[1];
  x.shape[1] = end - begin;
  return x;
}

}  // namespace

OperatorRun sequence_by_sequence(OperatorRun run) {
  return [run = std::move(run)](const OperatorArguments& call, const Contract& contract) {
    if (!call.cu_seqlens.present()) return run(call, contract);
    for (std::int64_t n = 0; n + 1 < call.cu_seqlens.shape[0]; ++n) {
      const std::int64_t begin = call.cu_seqlens(n), end = call.cu_seqlens(n + 1);
      OperatorArguments one = call;
      one.cu_seqlens = {};
      one.batch = 1;
      one.tokens = end - begin;
      for (auto& x : one.inputs) x = part_of(x, n, begin, end);
      for (auto& x : one.outputs) x = part_of(x, n, begin, end);
      const Outcome outcome = run(one, contract);
      if (outcome.kind != Outcome::Kind::ran) return outcome;
    }
    return Outcome{};
  };
}

}  // namespace samestate

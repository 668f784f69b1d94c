#include "fuzz/mutants/backward/faults_of_sums.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "optimized/cpu/rounding.h"

namespace samestate::mutants {
namespace {

using Call = ChangedCall;

/// The outputs of sequence b of a dense call, run alone without its last `lost` tokens.
Outputs sequence_alone(const OperatorKernel& right, const OperatorArguments& call, const Contract& contract,
                       std::int64_t b, std::int64_t lost) {
  OperatorArguments one = call;
  one.batch = 1, one.tokens = call.tokens - lost;
  Outputs out;
  const auto cut = [&](auto& x) {
    if (x.axis == Axis::whole) return;
    std::int64_t size = 1;
    for (std::size_t d = 1; d < x.shape.size(); ++d) size *= x.shape[d];
    x.data += b * size;
    x.shape[0] = 1;
    if (x.axis == Axis::tokens) x.shape[1] = one.tokens;
  };
  for (NamedTensor<const float>& x : one.inputs) cut(x);
  for (NamedTensor<float>& x : one.outputs) {
    cut(x);
    std::int64_t size = 1;
    for (const std::int64_t extent : x.shape) size *= extent;
    x.data = out.emplace(x.name, std::vector<float>(static_cast<std::size_t>(size))).first->second.data();
  }
  (void)right.run(one, contract);
  return out;
}

/// A kernel whose sums over the sequences are made by `add(sum, gradient of one sequence, number of the sequence)`, where
/// each sequence is taken without its last `lost` tokens.
CallFault summed(std::int64_t lost, std::function<void(float& sum, float one, std::int64_t b)> add) {
  return [lost, add = std::move(add)](const OperatorKernel& right, Call& c, const Contract& contract) {
    const Outcome outcome = right.run(c.call, contract);
    for (const NamedTensor<float>& x : c.call.outputs) {
      if (x.axis == Axis::whole) std::ranges::fill(c.output(x.name), 0.0F);
    }
    for (std::int64_t b = 0; b < c.call.batch; ++b) {
      const Outputs one = sequence_alone(right, c.call, contract, b, std::min(lost, c.call.tokens));
      for (const NamedTensor<float>& x : c.call.outputs) {
        if (x.axis != Axis::whole) continue;
        const std::span<float> sum = c.output(x.name);
        for (std::size_t i = 0; i < sum.size(); ++i) add(sum[i], one.at(x.name)[i], b);
      }
    }
    return outcome;
  };
}

void add_first(float& sum, float one, std::int64_t b) {
  if (b == 0) sum = one;
}
void keep_last(float& sum, float one, std::int64_t) { sum = one; }
void add_plainly(float& sum, float one, std::int64_t) { sum += one; }
void add_in_bf16(float& sum, float one, std::int64_t) { sum = cpu::to_bf16(sum + one); }

/// The faults of every sum over a call.
std::vector<OperatorFault> faults_of_sums() {
  return {{"F", "sum_of_the_first_sequence", "the gradients of weights are those of the first sequence",
           summed(0, add_first)},
          {"F", "sum_of_the_last_sequence", "each sequence overwrites the gradients of weights",
           summed(0, keep_last)},
          {"F", "sum_without_the_last_token", "the gradients of weights lack the last token",
           summed(1, add_plainly)},
          {"F", "sum_in_bf16", "the gradients of weights are added up in bf16", summed(0, add_in_bf16)}};
}

}  // namespace

std::vector<OperatorFault> with_sums(std::vector<OperatorFault> faults) {
  for (OperatorFault& fault : faults_of_sums()) faults.push_back(std::move(fault));
  return faults;
}

}  // namespace samestate::mutants

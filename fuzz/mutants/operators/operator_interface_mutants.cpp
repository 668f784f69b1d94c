#include <algorithm>
#include <utility>

#include "fuzz/mutants/operators/changed_call.h"

/// Bugs that per-tensor strides and earlier calls show (optimized/operator_kernel.h).
namespace samestate::mutants {
namespace {

/// `input` is read with the strides of `other`, a tensor of its shape.
Mutant strides_of_another(std::string_view kernel, std::string_view input, std::string_view other) {
  const OperatorKernel& right = right_operator(kernel);
  Mutant m =
      operator_mutant(right, "F", "strides_of_another", "one input is read with the strides of another",
                      [&right, input, other](const OperatorArguments& original, const Contract& contract) {
                        OperatorArguments call = original;
                        for (NamedTensor<const float>& x : call.inputs) {
                          if (x.name == input) x.stride = original.input(other).stride;
                        }
                        return right.run(call, contract);
                      });
  m.operators.front().strided = true;
  return m;
}

/// Keeps `input` from the first call with as many elements at its address, like weights that are packed once.
Mutant kept_by_address(std::string_view kernel, std::string_view input) {
  const OperatorKernel& right = right_operator(kernel);
  return operator_mutant(right, "F", "weight_kept_by_address",
                         "a weight is that of an earlier call on its memory",
                         [&right, input](const OperatorArguments& original, const Contract& contract) {
                           static thread_local std::pair<const float*, std::vector<float>> kept;
                           ChangedCall call(original);
                           const std::span<float> now = call.input(input);
                           const float* address = original.input(input).data;
                           if (kept.first != address || kept.second.size() != now.size())
                             kept = {address, {now.begin(), now.end()}};
                           std::ranges::copy(kept.second, now.begin());
                           return right.run(call.call, contract);
                         });
}

}  // namespace

std::vector<Mutant> operator_interface_mutants() {
  return {strides_of_another("cpu.gated_rms_norm.fused", "x", "z"),
          strides_of_another("cpu.residual_rms_norm.fused", "x", "residual"),
          strides_of_another("cpu.linear_attention_normalised.chunked", "q", "k"),
          kept_by_address("cpu.rms_norm.fused", "weight"),
          kept_by_address("cpu.short_convolution.scatter", "kernel")};
}

}  // namespace samestate::mutants

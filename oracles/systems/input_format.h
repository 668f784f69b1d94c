#pragma once

#include "oracles/systems/operator.h"

namespace samestate {

/// The format of the values in an input tensor: the contract's for data and weights, fp32 for the rest.
[[nodiscard]] inline Format input_format(const TensorSpec& spec, const Contract& contract) {
  const Content content = spec.content;
  // A window of a convolution that has begun holds activations; zeros are exact in every format.
  const bool rounded = content == Content::activation || content == Content::weight ||
                       content == Content::features || content == Content::zeros || content == Content::key;
  return rounded ? contract.input : Format::fp32;
}

/// True for an output that is a gate's gradient: kernels write it in the gates' format, fp32.
[[nodiscard]] inline bool is_of_gate(const TensorSpec& output) {
  return output.content == Content::log_decay || output.content == Content::strength;
}

/// The format of an output in a tensor of the contract's formats. The gradient of a weight has the weight's.
[[nodiscard]] inline Format device_format(const TensorSpec& output, const Contract& contract) {
  if (output.axis == Axis::state) return contract.state;
  const bool data = output.axis == Axis::tokens && !is_of_gate(output);
  const bool of_weight = output.axis == Axis::whole && input_format(output, contract) != Format::fp32;
  return data || of_weight ? contract.output : Format::fp32;
}

}  // namespace samestate

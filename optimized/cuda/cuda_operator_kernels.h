#pragma once

#include <string>
#include <vector>

#include "optimized/operator_kernel.h"

/// The CUDA kernels of named tensors, as rows of the table, grouped by what they compute. They support the
/// contracts fp32 and bf16, any sizes within a row's limits, and any strides. Without a device they return
/// Outcome no_device. They throw Error if the CUDA runtime reports a failure.
namespace samestate::cuda {

/// All of them.
[[nodiscard]] std::vector<OperatorKernel> cuda_operator_kernels();
[[nodiscard]] std::vector<OperatorKernel> norm_kernels();
/// Gates, short convolution, rotary embedding.
[[nodiscard]] std::vector<OperatorKernel> layer_part_kernels();
/// Overlap windows and router.
[[nodiscard]] std::vector<OperatorKernel> dendritic_kernels();
/// Router of experts and its load.
[[nodiscard]] std::vector<OperatorKernel> routing_kernels();
/// Mixtures of experts.
[[nodiscard]] std::vector<OperatorKernel> expert_kernels();
/// The dendritic layer after its router.
[[nodiscard]] std::vector<OperatorKernel> dendritic_layer_kernels();
/// The Gated DeltaNet layer.
[[nodiscard]] std::vector<OperatorKernel> delta_net_layer_kernels();
/// Its serving step.
[[nodiscard]] std::vector<OperatorKernel> gated_delta_step_kernels();
/// Its parts.
[[nodiscard]] std::vector<OperatorKernel> delta_net_kernels();
/// Softmax attention, with and without gates.
[[nodiscard]] std::vector<OperatorKernel> attention_kernels();
/// Latent attention.
[[nodiscard]] std::vector<OperatorKernel> latent_kernels();
/// State spaces.
[[nodiscard]] std::vector<OperatorKernel> scan_kernels();
[[nodiscard]] std::vector<OperatorKernel> duality_kernels();
/// Mamba's layers.
[[nodiscard]] std::vector<OperatorKernel> mixer_kernels();
/// RetNet's layer.
[[nodiscard]] std::vector<OperatorKernel> retention_layer_kernels();
/// Linear attention with a normaliser or without a mask, and RetNet's retention.
[[nodiscard]] std::vector<OperatorKernel> recurrence_kernels();
/// Steps of test-time training.
[[nodiscard]] std::vector<OperatorKernel> learning_step_kernels();

/// The code that multiplies plain matrices on this device, for records: "cuBLASLt 13.1.0", or "own" and why.
[[nodiscard]] std::string product_library();
/// Allows or forbids the library for products; it is allowed by default. For comparisons; call it before the
/// first launch.
void use_product_library(bool wanted);

}  // namespace samestate::cuda

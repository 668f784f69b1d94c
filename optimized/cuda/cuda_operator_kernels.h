#pragma once

#include <string>
#include <vector>

#include "optimized/operator_kernel.h"

/// The CUDA kernels of named tensors, rows of the table by what they compute; contracts fp32 and bf16, any size of the
/// systems inside a row's limits, any strides. Without a device they answer Outcome no_device. They throw Error where the
/// CUDA runtime reports a failure.
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
/// The dendritic layer behind its router.
[[nodiscard]] std::vector<OperatorKernel> dendritic_layer_kernels();
/// The Gated DeltaNet layer.
[[nodiscard]] std::vector<OperatorKernel> delta_net_layer_kernels();
/// Its serving step.
[[nodiscard]] std::vector<OperatorKernel> gated_delta_step_kernels();
/// Its parts.
[[nodiscard]] std::vector<OperatorKernel> delta_net_kernels();
/// Softmax attention, with gates too.
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
/// Linear attention with a normaliser or without a mask, RetNet's retention.
[[nodiscard]] std::vector<OperatorKernel> recurrence_kernels();
/// Steps of test-time training.
[[nodiscard]] std::vector<OperatorKernel> learning_step_kernels();

/// What multiplies plain matrices on this device, for records: "cuBLASLt 13.1.0", or "own" and why.
[[nodiscard]] std::string product_library();
/// Whether products may go to the library; from the beginning they may. For a comparison, before the first launch.
void use_product_library(bool wanted);

}  // namespace samestate::cuda

#include "optimized/cuda/cuda_operator_kernels.h"

#include <utility>

namespace samestate::cuda {

std::vector<OperatorKernel> cuda_operator_kernels() {
  std::vector<OperatorKernel> table;
  const auto add = [&](std::vector<OperatorKernel> rows) {
    for (OperatorKernel& row : rows) table.push_back(std::move(row));
  };
  add(norm_kernels());
  add(layer_part_kernels());
  add(delta_net_kernels());
  add(delta_net_layer_kernels());
  add(gated_delta_step_kernels());
  add(dendritic_kernels());
  add(dendritic_layer_kernels());
  add(attention_kernels());
  add(latent_kernels());
  add(routing_kernels());
  add(expert_kernels());
  add(scan_kernels());
  add(duality_kernels());
  add(mixer_kernels());
  add(recurrence_kernels());
  add(retention_layer_kernels());
  add(learning_step_kernels());
  return table;
}

}  // namespace samestate::cuda

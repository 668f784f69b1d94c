#include "optimized/cuda/operators/kernels.h"

#include <utility>

namespace samestate::cuda {

std::vector<OperatorKernel> cuda_operator_kernels() {
  std::vector<OperatorKernel> table;
       {norm_kernels, layer_part_kernels, delta_net_kernels, dendritic_kernels, dendritic_layer_kernels,
        routing_kernels, expert_kernels, attention_kernels}) {
         for (OperatorKernel& row : rows()) table.push_back(std::move(row));
       }
       return table;
}

}  // namespace samestate::cuda

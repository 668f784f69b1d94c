#include "optimized/cuda/operators/kernels.h"

#include <utility>

namespace samestate::cuda {

std::vector<OperatorKernel> cuda_operator_kernels() {
  std::vector<OperatorKernel> table;
  for (const auto rows :
       {norm_kernels, layer_part_kernels, dendritic_kernels, attention_kernels, latent_kernels}) {
    for (OperatorKernel& row : rows()) table.push_back(std::move(row));
  }
  return table;
}

}  // namespace samestate::cuda

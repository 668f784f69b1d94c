/// The rows of the CUDA kernels of named tensors, executed by the emulation. This is a plugin, so that the
/// gate judges them with its whole plan on a machine without a device. `samestate gate --plugin
/// libemulated_operators.so --kernel 'emulated.*'`.
#include <string>
#include <vector>

#include "optimized/cuda/cuda_operator_kernels.h"
#include "optimized/cuda/units/emulated_fibers.h"
#include "optimized/plugin.h"

extern "C" {

int samestate_plugin_abi() { return samestate::plugin_abi; }

void samestate_plugin_kernels(std::vector<samestate::Kernel>*) {}

void samestate_plugin_operator_kernels(std::vector<samestate::OperatorKernel>* rows) {
  for (samestate::OperatorKernel row : samestate::cuda::cuda_operator_kernels()) {
    row.name.replace(0, std::string("cuda").size(), "emulated");
    row.device = "cpu";
    // Late and early copies, and who runs first, are told by the call, so that a case line repeats what it met.
    row.run = [run = row.run](const samestate::OperatorArguments& call, const samestate::Contract& contract) {
      samestate::cuda::emulation::copies_land_late_here = (call.tokens + call.batch) % 2 == 0;
      samestate::cuda::emulation::first_schedule = call.tokens / 2 + call.batch;
      return run(call, contract);
    };
    rows->push_back(std::move(row));
  }
}

}  // extern "C"

/// The rows of the CUDA kernels of named tensors and of the backward passes, executed by the emulation. This is a plugin, so that the
/// gate judges them with its whole plan on a machine without a device. `samestate gate --plugin
/// libemulated_operators.so --kernel 'emulated.*'`.
#include <string>
#include <utility>
#include <vector>

#include "optimized/cuda/backward/backward_kernels.h"
#include "optimized/cuda/cuda_operator_kernels.h"
#include "optimized/cuda/units/emulated_fibers.h"
#include "optimized/plugin.h"

namespace {

/// A row of the device as one of the host. Late and early copies, and who runs first, are told by the call, so that a case line
/// repeats what it met.
template <class Call, class Row>
Row emulated(Row row) {
  row.name.replace(0, std::string("cuda").size(), "emulated");
  row.device = "cpu";
  row.run = [run = row.run](const Call& call, const samestate::Contract& contract) {
    samestate::cuda::emulation::copies_land_late_here = (call.tokens + call.batch) % 2 == 0;
    samestate::cuda::emulation::first_schedule = call.tokens / 2 + call.batch;
    return run(call, contract);
  };
  return row;
}

}  // namespace

extern "C" {

int samestate_plugin_abi() { return samestate::plugin_abi; }
int samestate_plugin_call_abi() { return samestate::plugin_call_abi; }

void samestate_plugin_kernels(std::vector<samestate::Kernel>*) {}

void samestate_plugin_operator_kernels(std::vector<samestate::OperatorKernel>* rows) {
  for (samestate::OperatorKernel& row : samestate::cuda::cuda_operator_kernels())
    rows->push_back(emulated<samestate::OperatorArguments>(std::move(row)));
}

void samestate_plugin_call_kernels(std::vector<samestate::CallKernel>* rows) {
  for (samestate::CallKernel& row : samestate::cuda::backward_kernels())
    rows->push_back(emulated<samestate::KernelCall>(std::move(row)));
}

}  // extern "C"

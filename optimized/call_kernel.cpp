#include "optimized/call_kernel.h"

#include <utility>

#include "optimized/cpu/backward/kernels.h"
#ifdef SAMESTATE_HAVE_CUDA
#include "optimized/cuda/backward/backward_kernels.h"
#endif

namespace samestate {
namespace {

/// Returns the function as one that takes calls; null if there is none.
template <class Result, class Arguments, class Adapter, class... Further>
std::function<Result(const KernelCall&, const Further&...)> taking_calls(
    const std::function<Result(const Arguments&, const Further&...)>& function, Adapter adapter) {
  if (!function) return nullptr;
  return [function, adapter](const KernelCall& call, const Further&... further) {
    return function(adapter(call), further...);
  };
}

template <class Row>
CallKernel common_row(const Row& kernel, std::string_view listed_by) {
  CallKernel row;
  row.name = kernel.name;
  row.system = kernel.system;
  row.form = kernel.form;
  row.device = kernel.device;
  row.contracts = kernel.contracts;
  row.limits = kernel.limits;
  row.listed_by = listed_by;
  return row;
}

}  // namespace

CallKernel by_call(const Kernel& kernel) {
  CallKernel row = common_row(kernel, kFamilyRows);
  row.run = taking_calls(kernel.run, arguments_of);
  row.time = taking_calls(kernel.time, arguments_of);
  row.trace = taking_calls(kernel.trace, arguments_of);
  row.variants = kernel.variants;
  return row;
}

CallKernel by_call(const OperatorKernel& kernel) {
  CallKernel row = common_row(kernel, kTensorRows);
  row.run = taking_calls(kernel.run, operator_arguments_of);
  row.time = taking_calls(kernel.time, operator_arguments_of);
  row.strided = kernel.strided;
  row.packed = kernel.packed;
  row.taps = kernel.taps;
  return row;
}

std::span<const CallKernel> call_kernels() {
  static const std::vector<CallKernel> kTable = [] {
    std::vector<CallKernel> rows = by_calls(kernels());
    for (CallKernel& row : by_calls(operator_kernels())) rows.push_back(std::move(row));
    for (CallKernel& row : cpu::backward_kernels()) rows.push_back(std::move(row));
#ifdef SAMESTATE_HAVE_CUDA
    for (CallKernel& row : cuda::backward_kernels()) rows.push_back(std::move(row));
#endif
    return rows;
  }();
  return kTable;
}

}  // namespace samestate

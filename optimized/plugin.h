#pragma once

#include <vector>

#include "optimized/call_kernel.h"
#include "optimized/kernel.h"
#include "optimized/operator_kernel.h"

/// Adds a kernel of yours to the table without changing samestate: build a shared library that defines, with
/// C linkage, the first function below and one that lists rows, and load it with `samestate gate --plugin
/// FILE.so`. examples/kernel_plugin is an example to copy.
namespace samestate {

/// The number on which host and plugin must agree. The first factor counts changes of meaning and is raised
/// by hand (9: a call of named tensors may be a packed batch); the sum follows the layout of the types that
/// are exchanged. Both sides must be built with the same C++ standard library.
inline constexpr int plugin_abi =
    9 * 100'000 +
    static_cast<int>(sizeof(Arguments) + sizeof(Contract) + sizeof(Outcome) + sizeof(Kernel) +
                     sizeof(TimingRequest) + sizeof(Timing) + sizeof(KernelTrace) +
                     sizeof(OperatorArguments) + sizeof(OperatorKernel) + sizeof(NamedTensor<float>));

/// The same for rows of KernelCall, which came later: a plugin that was built before they came has none, and its own number is the
/// one above, which does not follow their layout (2: a row may ask for the contract's dtypes).
inline constexpr int plugin_call_abi =
    2 * 100'000 +
    static_cast<int>(sizeof(KernelCall) + sizeof(CallTensor) + sizeof(CallKernel) + sizeof(Outcome) +
                     sizeof(Contract) + sizeof(TimingRequest) + sizeof(Timing) + sizeof(KernelTrace));

}  // namespace samestate

#define SAMESTATE_PLUGIN_EXPORT __attribute__((visibility("default")))

extern "C" {

/// Returns samestate::plugin_abi as the plugin was compiled. The host refuses a plugin whose number differs
/// from its own, and then calls nothing else in it.
SAMESTATE_PLUGIN_EXPORT int samestate_plugin_abi();

/// Appends one row per kernel to `*rows`. `Kernel::name` must not be in the table yet (a prefix of your own,
/// as in my.gated_delta_rule.recurrent, makes it unique); `run` is called from several threads and must stay
/// valid while the process lives. May throw samestate::Error; any other exception ends the process. `time`,
/// for `samestate bench`, is optional; it is called from one thread at a time.
SAMESTATE_PLUGIN_EXPORT void samestate_plugin_kernels(std::vector<samestate::Kernel>* rows);

/// The same for kernels of the systems with named tensors (`samestate list systems`), including `time`.
/// Optional.
SAMESTATE_PLUGIN_EXPORT void samestate_plugin_operator_kernels(std::vector<samestate::OperatorKernel>* rows);

/// The same for kernels of any system, whose functions take a KernelCall. Optional; a plugin that has it
/// needs neither of the two above, and returns samestate::plugin_call_abi from the second function.
SAMESTATE_PLUGIN_EXPORT void samestate_plugin_call_kernels(std::vector<samestate::CallKernel>* rows);
SAMESTATE_PLUGIN_EXPORT int samestate_plugin_call_abi();

}  // extern "C"

#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "optimized/kernel.h"
#include "optimized/kernel_call.h"
#include "optimized/operator_kernel.h"

/// The table of kernels of all systems: a row has one function, which takes a KernelCall. Kernel and OperatorKernel, whose functions
/// take Arguments and OperatorArguments, become such rows by the adapters below; both stay for plugins that were built for them
/// until plugin_abi (optimized/plugin.h) reaches 10.
namespace samestate {

/// The functions of a plugin that list rows (optimized/plugin.h).
inline constexpr std::string_view kFamilyRows = "samestate_plugin_kernels";
inline constexpr std::string_view kTensorRows = "samestate_plugin_operator_kernels";
inline constexpr std::string_view kCallRows = "samestate_plugin_call_kernels";

/// One row of the table.
struct CallKernel {
  std::string name;    ///< device.system.form, as in cpu.gated_delta_rule.chunked
  std::string system;  ///< a row of `samestate list systems`
  std::string
      form;  ///< one of the system's forms that kernels are written for; decode and packed runs are calls of it
  std::string device;                  ///< cpu or cuda
  std::vector<std::string> contracts;  ///< as Kernel::contracts
  /// Evaluates one call; called from several threads at a time.
  std::function<Outcome(const KernelCall&, const Contract&)> run = nullptr;
  std::vector<std::string> limits = {};  ///< the calls that it takes, as Kernel::limits
  bool strided = true;  ///< takes tensors with strides of their own; else every tensor is dense
  bool packed = true;   ///< reads KernelCall::cu_seqlens; else it is asked for no packed batch
  std::vector<std::string> taps = {};  ///< as OperatorKernel::taps
  std::vector<Variant> variants = {};  ///< as Kernel::variants
  /// Evaluates the same call many times, as Kernel::time. Empty: `samestate bench` times `run` by the wall clock.
  std::function<Timing(const KernelCall&, const Contract&, const TimingRequest&)> time = nullptr;
  /// Evaluates the call once and notes what warps waited for, as Kernel::trace. Empty: nothing is known of them.
  std::function<KernelTrace(const KernelCall&, const Contract&, const TraceRequest&)> trace = nullptr;
  /// Its tensors come in the contract's formats, bf16 and fp16 as such (CallTensor::dtype) and all else as fp32. False: every
  /// tensor is fp32.
  bool contract_dtypes = false;
  /// The function of a plugin that lists rows of its kind: of systems of which kind its function can be called.
  std::string_view listed_by = kCallRows;
};

/// The call as a kernel of the recurrent family is given it. Views are those of the call, whose `cuts` and offsets have to outlive
/// the result. Throws Error for a tensor of another rank or type (a gate a channel, [B, T, Hv, dk]) and for a setting that Arguments has no
/// place for (backward).
[[nodiscard]] Arguments arguments_of(const KernelCall& call);

/// The same for a kernel of named tensors; a dense tensor has no strides there. Throws Error for a tensor that is not fp32, and for a
/// setting that OperatorArguments has no place for.
[[nodiscard]] OperatorArguments operator_arguments_of(const KernelCall& call);

/// The row of a kernel that takes Arguments, or OperatorArguments.
[[nodiscard]] CallKernel by_call(const Kernel& kernel);
[[nodiscard]] CallKernel by_call(const OperatorKernel& kernel);
[[nodiscard]] inline CallKernel by_call(const CallKernel& kernel) { return kernel; }

/// All rows of a list, in its order.
template <class Rows>
[[nodiscard]] std::vector<CallKernel> by_calls(const Rows& rows) {
  std::vector<CallKernel> out;
  for (const auto& row : rows) out.push_back(by_call(row));
  return out;
}

/// The table of this build: kernels(), then operator_kernels().
[[nodiscard]] std::span<const CallKernel> call_kernels();

}  // namespace samestate

#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "optimized/kernel.h"
#include "optimized/kernel_call.h"
#include "optimized/operator_kernel.h"

/// The table of kernels of all systems: each row has one function, which takes a KernelCall. The adapters
/// below turn Kernel and OperatorKernel, whose functions take Arguments and OperatorArguments, into such
/// rows. Both types stay for plugins that were built for them until plugin_abi (optimized/plugin.h) reaches
/// 10.
namespace samestate {

/// The functions of a plugin that list rows (optimized/plugin.h).
inline constexpr std::string_view kFamilyRows = "samestate_plugin_kernels";
inline constexpr std::string_view kTensorRows = "samestate_plugin_operator_kernels";
inline constexpr std::string_view kCallRows = "samestate_plugin_call_kernels";

/// One row of the table.
struct CallKernel {
  std::string name;    ///< device.system.form, for example cpu.gated_delta_rule.chunked
  std::string system;  ///< a system from `samestate list systems`
  std::string
      form;  ///< one of the system's forms that kernels are written for; decode and packed runs are calls of these
  std::string device;                  ///< cpu or cuda
  std::vector<std::string> contracts;  ///< as Kernel::contracts
  /// Evaluates one call. Must be safe to call from several threads at once.
  std::function<Outcome(const KernelCall&, const Contract&)> run = nullptr;
  std::vector<std::string> limits = {};  ///< the calls that it accepts, as Kernel::limits
  bool strided = true;  ///< accepts tensors with arbitrary strides; if false, every tensor it gets is dense
  bool packed = true;   ///< reads KernelCall::cu_seqlens; if false, it gets no packed batch
  std::vector<std::string> taps = {};  ///< as OperatorKernel::taps
  std::vector<Variant> variants = {};  ///< as Kernel::variants
  /// Evaluates the same call many times, as Kernel::time. If empty, `samestate bench` measures `run` with the
  /// wall clock.
  std::function<Timing(const KernelCall&, const Contract&, const TimingRequest&)> time = nullptr;
  /// Evaluates the call once and records what warps waited for, as Kernel::trace. If empty, there are no
  /// traces.
  std::function<KernelTrace(const KernelCall&, const Contract&, const TraceRequest&)> trace = nullptr;
  /// Its tensors come in the contract's formats, bf16 and fp16 as such (CallTensor::dtype) and all else as fp32. False: every
  /// tensor is fp32.
  bool contract_dtypes = false;
  /// The plugin function that lists rows of this kind; it determines which kind of system this function can
  /// be called for.
  std::string_view listed_by = kCallRows;
};

/// The call in the form that kernels of the recurrent family take. Views are those of the call, whose `cuts`
/// and offsets have to outlive the result. Throws Error for a tensor of another rank or type (a gate per
/// channel, [B, T, Hv, dk]) and for a setting that Arguments cannot express (backward).
[[nodiscard]] Arguments arguments_of(const KernelCall& call);

/// The same for kernels of named tensors, where a dense tensor has no strides. Throws Error for a tensor that
/// is not fp32, and for a setting that OperatorArguments cannot express.
[[nodiscard]] OperatorArguments operator_arguments_of(const KernelCall& call);

/// The row of a kernel that takes Arguments or OperatorArguments.
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

/// The table of this build: kernels(), followed by operator_kernels() and the backward kernels.
[[nodiscard]] std::span<const CallKernel> call_kernels();

}  // namespace samestate

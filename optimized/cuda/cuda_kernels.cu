#include "optimized/cuda/cuda_kernels.h"

#include <cuda_runtime.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "optimized/cuda/delta/chunk_fma_dense.cuh"
#include "optimized/cuda/delta/chunk_wgmma_dense.cuh"
#include "optimized/cuda/delta/dense_call.h"
#include "optimized/cuda/delta/dense_launch.cuh"
#include "optimized/cuda/host/device.cuh"
#include "optimized/cuda/host/device_memory.cuh"
#include "optimized/cuda/host/measure.cuh"

namespace samestate {
namespace cuda {
namespace {

std::string dotted(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Device find_device() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) return {{}, std::string("no CUDA device: ") + cudaGetErrorString(status)};
  if (count == 0) return {{}, "no CUDA device: the driver reports none"};
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  if (properties.major < 9) {
    return {{},
            std::string("no CUDA device: ") + properties.name + " has compute capability " +
                std::to_string(properties.major) + "." + std::to_string(properties.minor) +
                "; the kernels are built for 9.0 and later"};
  }
  int driver = 0;
  int runtime = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  return {DeviceInfo{properties.name, dotted(driver), dotted(runtime)}, {}};
}

/// The row of chunked_rows() or recurrent_rows() that evaluates a call.
struct Choice {
  bool delta = false;
  bool chunked = false;
  std::size_t row = 0;

  [[nodiscard]] bool prefill() const { return chunked && row < kMmaRow; }
  /// Returns true for kernels of two launches.
  [[nodiscard]] bool simt() const { return chunked && (row == kMmaRow || row == kSimtRow); }
  [[nodiscard]] const char* name() const {
    return prefill()            ? "prefill_kernel"
           : simt()             ? "simt_kernel"
           : chunked            ? "chunked_kernel"
           : row == kGenericRow ? "recurrent_kernel"
                                : "decode_kernel";
  }
};

/// The tensors of one call on the device, uploaded on construction.
template <class Operand, class State>
class DeviceCall {
 public:
  /// With `in_place`, both states share memory if both are asked for, as in decoding.
  DeviceCall(Choice choice, const Packed<Operand, State>& packed, const Arguments& a, bool in_place,
             bool traced = false)
      : choice_(choice),
        q_(packed.q),
        k_(packed.k),
        v_(packed.v),
        g_(packed.g),
        beta_(packed.beta),
        initial_state_(packed.initial_state),
        cu_seqlens_(packed.cu_seqlens),
        in_place_(in_place && a.initial_state.present()),
        o_(static_cast<std::size_t>(a.o.present() ? a.o.size() : 0)),
        written_(static_cast<std::size_t>(a.final_state.present() && !in_place_ ? a.final_state.size() : 0)),
        parameters_(packed.parameters) {
    Parameters<Operand, State>& p = parameters_;
    p.q = q_.data(), p.k = k_.data(), p.v = v_.data();
    p.g = g_.data(), p.beta = beta_.data();
    p.initial_state = initial_state_.data();
    p.cu_seqlens = cu_seqlens_.data();
    p.o = o_.data();
    if (a.final_state.present()) p.final_state = in_place_ ? initial_state_.data() : written_.data();
    p.settled = !in_place_;  // no call writes it, and its upload has ended
    if constexpr (kPrefill) {
      if (choice.prefill())
        prefill_ =
            std::make_unique<PrefillCall>(p, a.q.shape[0] * a.q.shape[1], choice.delta, choice.row, traced);
    }
    if constexpr (std::is_same_v<Operand, float>) {
      if (choice.simt())
        simt_ =
            std::make_unique<SimtCall>(p, a.q.shape[0] * a.q.shape[1], choice.delta, choice.row == kMmaRow);
    }
  }

  [[nodiscard]] std::size_t bytes() const {
    return q_.bytes() + k_.bytes() + v_.bytes() + g_.bytes() + beta_.bytes() + initial_state_.bytes() +
           cu_seqlens_.bytes() + o_.bytes() + written_.bytes();
  }

  /// Outputs are filled with NaN, so that anything left unwritten is NaN.
  void poison(cudaStream_t stream) const {
    o_.fill(0xff, stream);
    written_.fill(0xff, stream);
  }

  void enqueue(Launch launch) const {
    if (prefill_) {
      prefill_->launch(launch.stream);
    } else if (simt_) {
      simt_->launch(launch.stream);
    } else if (!choice_.chunked && choice_.row != kGenericRow) {
      launch_decode(parameters_, choice_.row, choice_.delta, launch);
    } else if constexpr (std::is_same_v<State, float>) {
      choice_.chunked ? launch_chunked(parameters_, choice_.delta, launch.stream)
                      : launch_recurrent(parameters_, choice_.delta, launch.stream);
    }
  }

  /// Returns the trace of a call that was made to be traced; nullopt for a kernel whose waits record nothing.
  [[nodiscard]] std::optional<KernelTrace> trace(std::int64_t block) const {
    if (!prefill_) return std::nullopt;
    return prefill_->trace(block);
  }

  void download(const Arguments& a) const {
    if (a.o.present()) scatter_tokens(o_.download(), a);
    if (a.final_state.present()) scatter((in_place_ ? initial_state_ : written_).download(), a.final_state);
  }

 private:
  static constexpr bool kPrefill = std::is_same_v<Operand, Bf16> && std::is_same_v<State, float>;

  Choice choice_;
  DeviceBuffer<Operand> q_, k_, v_;
  DeviceBuffer<float> g_, beta_;
  DeviceBuffer<State> initial_state_;
  DeviceBuffer<std::int64_t> cu_seqlens_;
  bool in_place_;
  DeviceBuffer<Operand> o_;
  DeviceBuffer<State> written_;
  Parameters<Operand, State> parameters_;
  std::unique_ptr<PrefillCall> prefill_;
  std::unique_ptr<SimtCall> simt_;
};

template <class Operand, class State>
void evaluate(Choice choice, const Arguments& a, const Packed<Operand, State>& packed) {
  const DeviceCall<Operand, State> call(choice, packed, a, /*in_place=*/true);
  call.poison(nullptr);
  call.enqueue({});
  check_launch(choice.name());
  call.download(a);
}

/// The states are separate: every call then reads the same state and moves as many bytes as one in place.
/// Calls may overlap at their ends, as in a decoding engine's graph.
template <class Operand, class State>
Timing time_calls(Choice choice, const Arguments& a, const Packed<Operand, State>& packed,
                  const TimingRequest& request) {
  using Call = DeviceCall<Operand, State>;
  std::vector<std::unique_ptr<Call>> calls;
  calls.push_back(std::make_unique<Call>(choice, packed, a, /*in_place=*/false));
  const int copies = copies_beyond_cache(calls.front()->bytes(), request);
  while (std::ssize(calls) < copies)
    calls.push_back(std::make_unique<Call>(choice, packed, a, /*in_place=*/false));
  const auto at = [&](int copy) -> const Call& { return *calls[static_cast<std::size_t>(copy)]; };
  TimedCalls timed = measure(
      copies, request,
      [&](int copy, cudaStream_t stream) {
        at(copy).enqueue({stream, /*programmatic=*/true});
      },
      [&](int copy, cudaStream_t stream) { at(copy).poison(stream); });
  at(timed.last_copy).download(a);
  timed.timing.variant = (choice.chunked ? chunked_rows() : recurrent_rows())[choice.row].kernel;
  return timed.timing;
}

/// Calls `work(choice, packed)` with the call's tensors in the contract's formats. `variant` names the row of
/// the table to use if it takes the call; otherwise it is the first that does.
template <const cpu::System& system, bool chunked, class Work>
Outcome with_packed(const Arguments& a, const Contract& contract, const std::string& variant, Work&& work) {
  const cpu::Sizes sizes = cpu::checked_sizes(a);
  if (std::string reason = refusal(system, chunked, a, contract); !reason.empty()) {
    return {Outcome::Kind::unsupported, std::move(reason)};
  }
  const std::span<const DispatchRow> rows = chunked ? chunked_rows() : recurrent_rows();
  Choice choice{system.delta, chunked,
                chunked ? chunked_row(a, contract, system.delta) : recurrent_row(a, contract, system.delta)};
  if (!variant.empty()) {
    choice.row = row_named(rows, variant);
    const CallShape shape = shape_of(a, cpu::longest_sequence(a, sizes), system.delta);
    if (choice.row == rows.size() || !rows[choice.row].takes(shape, contract))
      return {Outcome::Kind::unsupported, "variant " + variant + " does not take this call"};
  }
  if (const Device& found = device(); !found.info) return {Outcome::Kind::no_device, found.reason};
  if (choice.prefill() && !has_asynchronous_products()) {
    return {
        Outcome::Kind::no_device,
        "contract " + contract.name + ": the prefill kernels need compute capability 9.0; use contract bf16"};
  }
  if (contract.state == Format::bf16) {
    work(choice, pack<Bf16, Bf16>(a, sizes, contract));
  } else if (contract.output == Format::bf16) {
    work(choice, pack<Bf16>(a, sizes, contract));
  } else {
    work(choice, pack<float>(a, sizes, contract));
  }
  return {};
}

template <const cpu::System& system, bool chunked>
Outcome run(const Arguments& a, const Contract& contract) {
  return with_packed<system, chunked>(
      a, contract, {}, [&](Choice choice, const auto& packed) { evaluate(choice, a, packed); });
}

template <const cpu::System& system, bool chunked>
Timing time(const Arguments& a, const Contract& contract, const TimingRequest& request) {
  Timing timing;
  Outcome outcome = with_packed<system, chunked>(
      a, contract, request.variant,
      [&](Choice choice, const auto& packed) { timing = time_calls(choice, a, packed, request); });
  timing.outcome = std::move(outcome);
  return timing;
}

template <const cpu::System& system>
KernelTrace trace(const Arguments& a, const Contract& contract, const TraceRequest& request) {
  KernelTrace result;
  bool traced = true;
  Outcome outcome = with_packed<system, true>(
      a, contract, request.variant,
      [&]<class Operand, class State>(Choice choice, const Packed<Operand, State>& packed) {
        const std::string variant(chunked_rows()[choice.row].kernel);
        if (std::optional<KernelTrace> found =
                DeviceCall<Operand, State>(choice, packed, a, /*in_place=*/false, /*traced=*/true)
                    .trace(request.block))
          result = std::move(*found);
        else
          traced = false;
        result.variant = variant;
      });
  result.outcome = std::move(outcome);
  if (!traced) {
    result.outcome = {Outcome::Kind::unsupported,
                      "variant " + result.variant + " takes no notes; those of contract bf16_fused do"};
  }
  return result;
}

template <const cpu::System& system>
void append(std::vector<Kernel>& table) {
  const std::string name(system.name);
  table.push_back({"cuda." + name + ".recurrent", name, "recurrent", "cuda", contracts_of(recurrent_rows()),
                   run<system, false>, time<system, false>, variants(recurrent_rows()), recurrent_limits()});
  table.push_back({"cuda." + name + ".chunked", name, "chunked", "cuda", contracts_of(chunked_rows()),
                   run<system, true>, time<system, true>, variants(chunked_rows()), chunked_limits(),
                   trace<system>});
}

}  // namespace

const Device& device() {
  static const Device found = find_device();
  return found;
}

}  // namespace cuda

std::vector<Kernel> cuda_kernels() {
  std::vector<Kernel> table;
  cuda::append<cpu::GATED_DELTA_RULE>(table);
  cuda::append<cpu::DELTA_RULE>(table);
  cuda::append<cpu::RETENTION>(table);
  cuda::append<cpu::LINEAR_ATTENTION>(table);
  return table;
}

std::optional<DeviceInfo> cuda_device() { return cuda::device().info; }

}  // namespace samestate

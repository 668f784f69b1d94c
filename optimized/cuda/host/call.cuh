#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "optimized/cuda/host/grid.cuh"
#include "optimized/cuda/host/taps.cuh"
#include "optimized/cuda/host/tensors.h"
#ifdef __CUDACC__
#include "optimized/cuda/host/device.cuh"
#include "optimized/cuda/host/measure.cuh"
#endif

/// The parts that the rows of named tensors share: copying the tensors there and back, timing, and the row
/// itself. A row `Op` has `Parameters<Operand>`, which it makes from a call and its tensors on the device,
/// and enqueues them in one or more launches.
namespace samestate::cuda {

/// The tensors of one call on the device, each uploaded or made when it is asked for.
template <class Operand>
class DeviceTensors {
 public:
  explicit DeviceTensors(const OperatorArguments& call) : call_(call) {}

  /// An input that the contract has in its format (activations, matrices, features); null where it is empty.
  [[nodiscard]] const Operand* operand(std::string_view name) { return upload(operands_, name); }
  /// An input that every contract has in fp32 (a norm's weight, gates, tables of angles, states of recurrences).
  [[nodiscard]] const float* fp32(std::string_view name) { return upload(others_, name); }
  /// An output in the contract's format.
  [[nodiscard]] Operand* output(std::string_view name) { return make(outputs_, name); }
  /// An output that every contract has in fp32: states of recurrences.
  [[nodiscard]] float* fp32_output(std::string_view name) { return make(states_, name); }
  /// Memory of this evaluation alone, `size` elements that one launch hands to the next.
  template <class T>
  [[nodiscard]] T* scratch(std::int64_t size) {
    scratch_.push_back(std::make_unique<DeviceBuffer<std::byte>>(static_cast<std::size_t>(size) * sizeof(T)));
    return reinterpret_cast<T*>(scratch_.back()->data());
  }

  /// Hands out a tap, in its parts, if the call asks for it: with a launch for each part after the
  /// evaluation, or where `before` stands.
  template <class T>
  void tap(std::string_view name, std::initializer_list<TapParameters<T>> parts,
           TapLaunches* before = nullptr) {
    float* const to = tapped(name);
    if (to == nullptr) return;
    for (TapParameters<T> part : parts) {
      part.to = to;
      (before != nullptr ? *before : taps_).template add<TappedElement<T>>(part);
    }
  }
  /// The memory of a tap that no copy fills but what `taps()` is given; null where the call does not ask for it.
  [[nodiscard]] float* tapped(std::string_view name) {
    return call_.tap(name) != nullptr ? fp32_output(name) : nullptr;
  }
  /// Returns what is enqueued after the evaluation.
  [[nodiscard]] TapLaunches& taps() { return taps_; }
  void enqueue_taps(cudaStream_t stream) const { taps_.enqueue(stream); }

  [[nodiscard]] std::size_t bytes() const {
    std::size_t sum = 0;
    for (const auto& buffer : operands_) sum += buffer->bytes();
    for (const auto& buffer : others_) sum += buffer->bytes();
    for (const auto& [to, buffer] : outputs_) sum += buffer->bytes();
    for (const auto& [to, buffer] : states_) sum += buffer->bytes();
    return sum;
  }
  /// Fills the outputs with NaN, so that anything left unwritten is NaN.
  void poison(cudaStream_t stream) const {
    for (const auto& [to, buffer] : outputs_) buffer->fill(0xff, stream);
    for (const auto& [to, buffer] : states_) buffer->fill(0xff, stream);
    for (const auto& buffer : scratch_) buffer->fill(0xff, stream);
  }
  void download() const {
    for (const auto& [to, buffer] : outputs_) scatter(buffer->download(), *to);
    for (const auto& [to, buffer] : states_) scatter(buffer->download(), *to);
  }

 private:
  template <class T>
  using Outputs = std::vector<std::pair<const NamedTensor<float>*, std::unique_ptr<DeviceBuffer<T>>>>;

  template <class T>
  const T* upload(std::vector<std::unique_ptr<DeviceBuffer<T>>>& to, std::string_view name) {
    to.push_back(std::make_unique<DeviceBuffer<T>>(dense<T>(call_.input(name))));
    return to.back()->data();
  }
  template <class T>
  T* make(Outputs<T>& outputs, std::string_view name) {
    const NamedTensor<float>& tensor = call_.output(name);
    std::size_t size = 1;
    for (const std::int64_t extent : tensor.shape) size *= static_cast<std::size_t>(extent);
    outputs.emplace_back(&tensor, std::make_unique<DeviceBuffer<T>>(size));
    return outputs.back().second->data();
  }

  const OperatorArguments& call_;
  std::vector<std::unique_ptr<DeviceBuffer<Operand>>> operands_;
  std::vector<std::unique_ptr<DeviceBuffer<float>>> others_;
  Outputs<Operand> outputs_;
  Outputs<float> states_;
  std::vector<std::unique_ptr<DeviceBuffer<std::byte>>> scratch_;
  TapLaunches taps_;
};

/// One evaluation, ready to be enqueued again and again.
template <class Op, class Operand>
struct DeviceCall {
  explicit DeviceCall(const OperatorArguments& call)
      : tensors(call), parameters(Op::template parameters<Operand>(call, tensors)) {}
  void enqueue(cudaStream_t stream) const {
    Op::enqueue(parameters, stream);
    tensors.enqueue_taps(stream);
  }
  DeviceTensors<Operand> tensors;
  typename Op::template Parameters<Operand> parameters;
};

/// `work(operand)` with a value of the contract's operand type, where the device is there.
template <class Work>
[[nodiscard]] Outcome in_format(const Contract& contract, Work&& work) {
  if (contract.output != contract.input ||
      (contract.input != Format::fp32 && contract.input != Format::bf16)) {
    return {Outcome::Kind::unsupported,
            "contract " + contract.name + ": the CUDA kernels of named tensors know fp32 and bf16"};
  }
  if (const Device& found = device(); !found.info) return {Outcome::Kind::no_device, found.reason};
  contract.input == Format::bf16 ? work(Bf16{}) : work(float{});
  return {};
}

template <class Op>
Outcome run(const OperatorArguments& call, const Contract& contract) {
  return in_format(contract, [&](auto operand) {
    const DeviceCall<Op, decltype(operand)> one(call);
    one.tensors.poison(nullptr);
    one.enqueue(nullptr);
    check_launch("the kernel");
    one.tensors.download();
  });
}

#ifdef __CUDACC__
template <class Op>
Timing time(const OperatorArguments& call, const Contract& contract, const TimingRequest& request) {
  Timing timing;
  Outcome outcome = in_format(contract, [&](auto operand) {
    using Call = DeviceCall<Op, decltype(operand)>;
    std::vector<std::unique_ptr<Call>> calls;
    calls.push_back(std::make_unique<Call>(call));
    const int copies = copies_beyond_cache(calls.front()->tensors.bytes(), request);
    while (std::ssize(calls) < copies) calls.push_back(std::make_unique<Call>(call));
    const auto at = [&](int copy) -> const Call& { return *calls[static_cast<std::size_t>(copy)]; };
    TimedCalls timed = measure(
        copies, request, [&](int copy, cudaStream_t stream) { at(copy).enqueue(stream); },
        [&](int copy, cudaStream_t stream) { at(copy).tensors.poison(stream); });
    at(timed.last_copy).tensors.download();
    timing = timed.timing;
  });
  timing.outcome = std::move(outcome);
  return timing;
}
#endif

template <class Op>
OperatorKernel row(const std::string& system, const std::string& form, std::vector<std::string> limits = {},
                   std::vector<std::string> taps = {}) {
  OperatorKernel kernel;
  kernel.name = "cuda." + system + "." + form;
  kernel.system = system;
  kernel.form = form;
  kernel.device = "cuda";
  kernel.contracts = {"fp32", "bf16"};
  kernel.run = run<Op>;
  kernel.strided = true;
#ifdef __CUDACC__
  kernel.time = time<Op>;
#endif
  kernel.limits = std::move(limits);
  kernel.taps = std::move(taps);
  return kernel;
}

}  // namespace samestate::cuda

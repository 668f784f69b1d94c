#include <cuda_runtime.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "optimized/cuda/device.cuh"
#include "optimized/cuda/device_memory.cuh"
#include "optimized/cuda/measure.cuh"
#include "optimized/cuda/operators/convolution.cuh"
#include "optimized/cuda/operators/dendritic.cuh"
#include "optimized/cuda/operators/kernels.h"
#include "optimized/cuda/operators/norms.cuh"
#include "optimized/cuda/operators/rotation.cuh"
#include "optimized/cuda/operators/tensors.h"

/// The rows of named tensors: how a call of each becomes parameters and a launch, and what all share, the way of the
/// tensors there and back and the time.
namespace samestate::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

/// Blocks for `items` of which one takes `each`; more than fit a grid go round.
unsigned blocks_of(std::int64_t items, std::int64_t each) {
  return static_cast<unsigned>(
      std::min<std::int64_t>((items + each - 1) / each, std::numeric_limits<int>::max()));
}

template <class Operand, RowNorm norm, int lanes, int loads>
__global__ void __launch_bounds__(kThreads) norm_kernel(const NormParameters<Operand> p) {
  constexpr int rows = 32 / lanes;
  for (std::int64_t group = blockIdx.x * std::int64_t{kWarps} + warp_index(); group * rows < p.rows;
       group += gridDim.x * std::int64_t{kWarps})
    norm_rows<Operand, norm, lanes, loads>(p, group);
}

template <class Operand, RowNorm norm>
__global__ void __launch_bounds__(kThreads) any_norm_kernel(const NormParameters<Operand> p) {
  for (std::int64_t row = blockIdx.x * std::int64_t{kWarps} + warp_index(); row < p.rows;
       row += gridDim.x * std::int64_t{kWarps})
    norm_row<Operand, norm>(p, row);
}

template <class Operand>
__global__ void __launch_bounds__(kThreads) gate_kernel(const GateParameters<Operand> p) {
  for (std::int64_t i = blockIdx.x * std::int64_t{kThreads} + thread_index(); i < p.elements;
       i += gridDim.x * std::int64_t{kThreads})
    gate(p, i);
}

template <class Operand, int n>
__global__ void __launch_bounds__(kThreads) rotation_kernel(const RotationParameters<Operand> p) {
  const std::int64_t items = p.tokens * p.heads * p.width / n;
  for (std::int64_t i = blockIdx.x * std::int64_t{kThreads} + thread_index(); i < items;
       i += gridDim.x * std::int64_t{kThreads})
    rotate<Operand, n>(p, i * n);
}

template <class Operand, int n>
__global__ void __launch_bounds__(kThreads) window_kernel(const WindowParameters<Operand> p) {
  const std::int64_t items = p.tokens * p.outputs() / n;
  for (std::int64_t i = blockIdx.x * std::int64_t{kThreads} + thread_index(); i < items;
       i += gridDim.x * std::int64_t{kThreads})
    split_windows<Operand, n>(p, i * n);
}

template <class Operand>
__global__ void __launch_bounds__(kThreads) router_kernel(const RouterParameters<Operand> p) {
  for (std::int64_t row = blockIdx.x * std::int64_t{kWarps} + warp_index(); row < p.rows;
       row += gridDim.x * std::int64_t{kWarps})
    route(p, row);
}

/// W 0: any W and any channels, one a thread.
template <class Operand, int W>
__global__ void __launch_bounds__(kThreads) convolution_kernel(const ConvolutionParameters<Operand> p) {
  constexpr int n = W == 0 ? 1 : 16 / static_cast<int>(sizeof(Operand));
  const int threads = p.channels / n;
  const std::int64_t items = p.batch * p.parts() * threads;
  for (std::int64_t i = blockIdx.x * std::int64_t{kThreads} + thread_index(); i < items;
       i += gridDim.x * std::int64_t{kThreads}) {
    const auto channel = static_cast<int>(i % threads) * n;
    const std::int64_t part = i / threads % p.parts();
    const std::int64_t b = i / threads / p.parts();
    if constexpr (W == 0) {
      convolve_channel(p, b, part, channel);
    } else {
      convolve_vector<Operand, W>(p, b, part, channel);
    }
  }
}

/// The tensors of one call on the device. Inputs are uploaded when they are asked for, activations and matrices as
/// operands, the rest (a norm's weight, gates, tables of angles) in fp32 as the contracts have them.
template <class Operand>
class DeviceTensors {
 public:
  explicit DeviceTensors(const OperatorArguments& call) : call_(call) {
    for (const NamedTensor<float>& tensor : call.outputs) {
      std::size_t size = 1;
      for (const std::int64_t extent : tensor.shape) size *= static_cast<std::size_t>(extent);
      outputs_.push_back(std::make_unique<DeviceBuffer<Operand>>(size));
    }
  }

  /// Null where the tensor is empty.
  [[nodiscard]] const Operand* operand(std::string_view name) { return upload(operands_, name); }
  [[nodiscard]] const float* fp32(std::string_view name) { return upload(others_, name); }
  [[nodiscard]] Operand* output(std::string_view name) const {
    return outputs_[static_cast<std::size_t>(&call_.output(name) - call_.outputs.data())]->data();
  }

  [[nodiscard]] std::size_t bytes() const {
    std::size_t sum = 0;
    for (const auto& buffer : operands_) sum += buffer->bytes();
    for (const auto& buffer : others_) sum += buffer->bytes();
    for (const auto& buffer : outputs_) sum += buffer->bytes();
    return sum;
  }
  /// What is not written afterwards is NaN.
  void poison(cudaStream_t stream) const {
    for (const auto& buffer : outputs_) buffer->fill(0xff, stream);
  }
  void download() const {
    for (std::size_t i = 0; i < outputs_.size(); ++i) scatter(outputs_[i]->download(), call_.outputs[i]);
  }

 private:
  template <class T>
  const T* upload(std::vector<std::unique_ptr<DeviceBuffer<T>>>& to, std::string_view name) {
    to.push_back(std::make_unique<DeviceBuffer<T>>(dense<T>(call_.input(name))));
    return to.back()->data();
  }

  const OperatorArguments& call_;
  std::vector<std::unique_ptr<DeviceBuffer<Operand>>> operands_, outputs_;
  std::vector<std::unique_ptr<DeviceBuffer<float>>> others_;
};

template <RowNorm norm>
struct Norms {
  template <class Operand>
  using Parameters = NormParameters<Operand>;
  static constexpr const char* kName = "norm_kernel";

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    Parameters<Operand> p;
    p.width = static_cast<int>(call.parameter("D"));
    p.rows = call.batch * call.tokens * call.parameter("H");
    p.x = tensors.operand("x");
    if constexpr (norm == RowNorm::residual) p.second = tensors.operand("residual");
    if constexpr (norm == RowNorm::gated || norm == RowNorm::gate_first) p.second = tensors.operand("z");
    if constexpr (norm != RowNorm::l2) p.weight = tensors.fp32("weight");
    p.y = tensors.output("y");
    if constexpr (norm == RowNorm::residual) p.sum = tensors.output("sum");
    return p;
  }

  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    constexpr int n = 16 / static_cast<int>(sizeof(Operand));
    if (p.rows == 0) return;
    if (p.width % n != 0 || p.width > 32 * 8 * n) {
      any_norm_kernel<Operand, norm><<<blocks_of(p.rows, kWarps), kThreads, 0, stream>>>(p);
    } else if (p.width <= 8 * n) {
      launch<Operand, 8, 1>(p, stream);
    } else if (p.width <= 16 * n) {
      launch<Operand, 16, 1>(p, stream);
    } else if (p.width <= 32 * n) {
      launch<Operand, 32, 1>(p, stream);
    } else if (p.width <= 32 * 2 * n) {
      launch<Operand, 32, 2>(p, stream);
    } else if (p.width <= 32 * 4 * n) {
      launch<Operand, 32, 4>(p, stream);
    } else {
      launch<Operand, 32, 8>(p, stream);
    }
  }

 private:
  template <class Operand, int lanes, int loads>
  static void launch(const Parameters<Operand>& p, cudaStream_t stream) {
    constexpr int rows = 32 / lanes * kWarps;
    norm_kernel<Operand, norm, lanes, loads><<<blocks_of(p.rows, rows), kThreads, 0, stream>>>(p);
  }
};

struct Gates {
  template <class Operand>
  using Parameters = GateParameters<Operand>;
  static constexpr const char* kName = "gate_kernel";

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    return {tensors.operand("a"),
            tensors.operand("b"),
            tensors.fp32("A_log"),
            tensors.fp32("dt_bias"),
            tensors.output("g"),
            tensors.output("beta"),
            call.batch * call.tokens * call.parameter("H"),
            static_cast<int>(call.parameter("H"))};
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    if (p.elements > 0) gate_kernel<<<blocks_of(p.elements, kThreads), kThreads, 0, stream>>>(p);
  }
};

struct Convolution {
  template <class Operand>
  using Parameters = ConvolutionParameters<Operand>;
  static constexpr const char* kName = "convolution_kernel";

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    return {tensors.operand("x"),
            tensors.operand("kernel"),
            call.parameter("bias") != 0 ? tensors.fp32("bias") : nullptr,
            tensors.operand("state"),
            tensors.output("y"),
            tensors.output("state"),
            call.batch,
            call.tokens,
            static_cast<int>(call.parameter("C")),
            static_cast<int>(call.parameter("W")),
            call.parameter("activation") != 0};
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    if (p.batch == 0) return;
    constexpr int n = 16 / static_cast<int>(sizeof(Operand));
    const bool vector = p.channels % n == 0;
    if (vector && p.W == 4) return launch<Operand, 4>(p, n, stream);
    if (vector && p.W == 3) return launch<Operand, 3>(p, n, stream);
    if (vector && p.W == 2) return launch<Operand, 2>(p, n, stream);
    launch<Operand, 0>(p, 1, stream);
  }

 private:
  template <class Operand, int W>
  static void launch(const Parameters<Operand>& p, int n, cudaStream_t stream) {
    const std::int64_t items = p.batch * p.parts() * (p.channels / n);
    convolution_kernel<Operand, W><<<blocks_of(items, kThreads), kThreads, 0, stream>>>(p);
  }
};

struct Rotation {
  template <class Operand>
  using Parameters = RotationParameters<Operand>;
  static constexpr const char* kName = "rotation_kernel";

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    return {tensors.operand("x"),
            tensors.fp32("cosine"),
            tensors.fp32("sine"),
            tensors.output("y"),
            call.batch * call.tokens,
            static_cast<int>(call.parameter("H")),
            static_cast<int>(call.parameter("d")),
            static_cast<int>(call.parameter("pairs")),
            call.parameter("interleaved") != 0};
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    constexpr int n = 16 / static_cast<int>(sizeof(Operand));
    const std::int64_t elements = p.tokens * p.heads * p.width;
    if (elements == 0) return;
    if (p.width % n == 0 && (p.interleaved || p.pairs % n == 0)) {
      rotation_kernel<Operand, n><<<blocks_of(elements / n, kThreads), kThreads, 0, stream>>>(p);
    } else {
      rotation_kernel<Operand, 1><<<blocks_of(elements, kThreads), kThreads, 0, stream>>>(p);
    }
  }
};

struct Windows {
  template <class Operand>
  using Parameters = WindowParameters<Operand>;
  static constexpr const char* kName = "window_kernel";

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    Parameters<Operand> p;
    p.x = tensors.operand("x");
    p.parts = tensors.operand("parts");
    p.windows = tensors.output("windows");
    p.sum = tensors.output("sum");
    p.tokens = call.batch * call.tokens;
    p.count = static_cast<int>(call.parameter("N"));
    p.channels = p.count * static_cast<int>(call.parameter("stride")) + static_cast<int>(call.parameter("O"));
    // One window is all channels.
    p.stride = p.count > 1 ? static_cast<int>(call.parameter("stride")) : p.channels;
    p.width = p.count > 1 ? p.stride + static_cast<int>(call.parameter("O")) : p.channels;
    return p;
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    constexpr int n = 16 / static_cast<int>(sizeof(Operand));
    const std::int64_t elements = p.tokens * p.outputs();
    if (elements == 0) return;
    if (p.stride % n == 0 && p.width % n == 0 && p.channels % n == 0) {
      window_kernel<Operand, n><<<blocks_of(elements / n, kThreads), kThreads, 0, stream>>>(p);
    } else {
      window_kernel<Operand, 1><<<blocks_of(elements, kThreads), kThreads, 0, stream>>>(p);
    }
  }
};

struct BranchRouter {
  template <class Operand>
  using Parameters = RouterParameters<Operand>;
  static constexpr const char* kName = "router_kernel";

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    return {tensors.operand("q"),
            tensors.operand("router"),
            tensors.output("omega"),
            tensors.output("mask"),
            call.batch * call.tokens * call.parameter("H"),
            static_cast<int>(call.parameter("d")),
            static_cast<int>(call.parameter("K") + call.parameter("idle")),
            static_cast<int>(call.parameter("Es")),
            static_cast<int>(call.parameter("K"))};
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    if (p.rows > 0) router_kernel<<<blocks_of(p.rows, kWarps), kThreads, 0, stream>>>(p);
  }
};

/// One evaluation, ready to be enqueued again and again.
template <class Op, class Operand>
struct DeviceCall {
  explicit DeviceCall(const OperatorArguments& call)
      : tensors(call), parameters(Op::template parameters<Operand>(call, tensors)) {}
  void enqueue(cudaStream_t stream) const {
    Op::enqueue(parameters, stream);
    check(cudaGetLastError(), Op::kName);
  }
  DeviceTensors<Operand> tensors;
  typename Op::template Parameters<Operand> parameters;
};

/// `work(operand)` with a value of the contract's operand type, where the device is there.
template <class Work>
Outcome in_format(const Contract& contract, Work&& work) {
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
    check_launch(Op::kName);
    one.tensors.download();
  });
}

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

template <class Op>
OperatorKernel row(const std::string& system, const std::string& form, std::vector<std::string> limits = {}) {
  OperatorKernel kernel;
  kernel.name = "cuda." + system + "." + form;
  kernel.system = system;
  kernel.form = form;
  kernel.device = "cuda";
  kernel.contracts = {"fp32", "bf16"};
  kernel.run = run<Op>;
  kernel.strided = true;
  kernel.time = time<Op>;
  kernel.limits = std::move(limits);
  return kernel;
}

}  // namespace
}  // namespace samestate::cuda

namespace samestate {

std::vector<OperatorKernel> cuda_operator_kernels() {
  using namespace cuda;
  return {row<Norms<RowNorm::plain>>("rms_norm", "fused"),
          row<Norms<RowNorm::zero_centred>>("zero_centred_rms_norm", "fused"),
          row<Norms<RowNorm::residual>>("residual_rms_norm", "fused"),
          row<Norms<RowNorm::gated>>("gated_rms_norm", "fused"),
          row<Norms<RowNorm::gate_first>>("gate_first_rms_norm", "fused"),
          row<Norms<RowNorm::l2>>("l2norm", "fused"),
          row<Gates>("activation_gates", "branchless"),
          row<Convolution>("short_convolution", "gather"),
          row<Rotation>("rotary_embedding", "equation"),
          row<Windows>("overlap_windows", "windows"),
          row<BranchRouter>("dendritic_router", "softmax", {"d <= 512", "K <= 16", "idle <= 64"})};
}

}  // namespace samestate

#include "optimized/cuda/cuda_kernels.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <string>
#include <utility>

#include "optimized/cuda/device.cuh"
#include "optimized/cuda/device_memory.cuh"
#include "optimized/cuda/launch.cuh"
#include "optimized/cuda/prepare.h"

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

template <class Operand>
void evaluate(const cpu::System& system, bool chunked, const Arguments& a, const Contract& contract,
              const cpu::Sizes& sizes) {
  const Packed<Operand> packed = pack<Operand>(a, sizes, contract);
  const DeviceBuffer<Operand> q(packed.q);
  const DeviceBuffer<Operand> k(packed.k);
  const DeviceBuffer<Operand> v(packed.v);
  const DeviceBuffer<float> g(packed.g);
  const DeviceBuffer<float> beta(packed.beta);
  const DeviceBuffer<float> initial_state(packed.initial_state);
  const DeviceBuffer<std::int64_t> cu_seqlens(packed.cu_seqlens);
  const DeviceBuffer<Operand> o(static_cast<std::size_t>(a.o.present() ? a.o.size() : 0));
  // Where both states are asked for, the kernel works in place.
  const bool in_place = a.initial_state.present();
  const DeviceBuffer<float> written(
      static_cast<std::size_t>(a.final_state.present() && !in_place ? a.final_state.size() : 0));

  Parameters<Operand> p = packed.parameters;
  p.q = q.data(), p.k = k.data(), p.v = v.data();
  p.g = g.data(), p.beta = beta.data();
  p.initial_state = initial_state.data();
  p.cu_seqlens = cu_seqlens.data();
  p.o = o.data();
  if (a.final_state.present()) p.final_state = in_place ? initial_state.data() : written.data();

  o.zero();  // rows of no packed sequence
  chunked ? launch_chunked(p, system.delta) : launch_recurrent(p, system.delta);
  if (a.o.present()) scatter(o.download(), a.o);
  if (a.final_state.present()) scatter((in_place ? initial_state : written).download(), a.final_state);
}

template <const cpu::System& system, bool chunked>
Outcome run(const Arguments& a, const Contract& contract) {
  const cpu::Sizes sizes = cpu::checked_sizes(a);
  if (std::string reason = refusal(system, chunked, a, contract); !reason.empty()) {
    return {Outcome::Kind::unsupported, std::move(reason)};
  }
  if (const Device& found = device(); !found.info) return {Outcome::Kind::no_device, found.reason};
  if (contract.output == Format::bf16) {
    evaluate<Bf16>(system, chunked, a, contract, sizes);
  } else {
    evaluate<float>(system, chunked, a, contract, sizes);
  }
  return {};
}

template <const cpu::System& system>
void append(std::vector<Kernel>& table) {
  const std::string name(system.name);
  table.push_back(
      {"cuda." + name + ".recurrent", name, "recurrent", "cuda", {"fp32", "bf16"}, run<system, false>});
  table.push_back(
      {"cuda." + name + ".chunked", name, "chunked", "cuda", {"fp32", "bf16"}, run<system, true>});
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

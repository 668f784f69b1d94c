#include "optimized/cuda/delta/chunk_wgmma_segments.h"

#include <cuda.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "optimized/cuda/delta/chunk_wgmma_dense/segments.cuh"
#include "optimized/cuda/delta/chunk_wgmma_dense/segments_plan.h"
#include "optimized/cuda/delta/chunk_wgmma_dense/tile_map.cuh"
#include "optimized/cuda/delta/dense_call.h"
#include "optimized/cuda/host/device.cuh"
#include "optimized/cuda/host/device_memory.cuh"
#include "optimized/cuda/host/measure.cuh"

namespace samestate {
namespace cuda {
namespace {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define SAMESTATE_SEGMENTS(statement) statement
#else
#define SAMESTATE_SEGMENTS(statement) __trap()  // the device is asked first whether it is one of 9.0
#endif

template <bool norm>
__global__ void __launch_bounds__(kSplitThreads, 1)
    map_kernel(const __grid_constant__ SegmentCall call, const __grid_constant__ Maps maps) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  SAMESTATE_SEGMENTS(
      (map_grid_block<norm>(*reinterpret_cast<MapGridShared*>(bytes), call, maps, blockIdx.x)));
}

__global__ void __launch_bounds__(kSplitThreads, 1)
    output_kernel(const __grid_constant__ SegmentCall call, const __grid_constant__ Maps maps) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  SAMESTATE_SEGMENTS((output_grid_block(*reinterpret_cast<StateShared*>(bytes), call, maps, blockIdx.x)));
}

using Launched = void (*)(const SegmentCall, const Maps);

void allow(Launched kernel, std::size_t shared_bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shared_bytes)),
        "cudaFuncSetAttribute");
}

/// The tensors of one call on the device, uploaded when it is made, and its workspace.
class SegmentedCall {
 public:
  SegmentedCall(const Packed<Bf16>& packed, const Arguments& a, const calls::Sizes& sizes)
      : plan_(plan_segments(a, sizes)),
        sequences_(sizes.sequences),
        memory_(segment_memory(plan_, packed.parameters, sizes.sequences)),
        q_(packed.q),
        k_(packed.k),
        v_(packed.v),
        g_(packed.g),
        beta_(packed.beta),
        o_(static_cast<std::size_t>(a.o.present() ? a.o.size() : 0)),
        final_state_(static_cast<std::size_t>(a.final_state.present() ? a.final_state.size() : 0)),
        offsets_(plan_.offsets),
        numbers_(plan_.numbers),
        places_(plan_.places),
        of_sequences_(plan_.sequences),
        chains_(plan_.chains),
        order_(plan_.order),
        unit_(identity(packed.parameters.dk)),
        M_(memory_.M),
        N_(memory_.N),
        reached_(memory_.reached),
        incoming_(packed.initial_state.empty() ? std::vector<float>(memory_.incoming, 0.0F)
                                               : packed.initial_state),
        prepared_(slots(packed.parameters, a)),
        ready_(slots(packed.parameters, a)),
        launches_(2),
        norm_(packed.parameters.l2norm) {
    Parameters<Bf16> p = packed.parameters;
    p.q = q_.data(), p.k = k_.data(), p.v = v_.data(), p.o = o_.data();
    p.g = g_.data(), p.beta = beta_.data();
    p.final_state = final_state_.data();
    call_ = segment_call(plan_, p, offsets_.data());
    call_.numbers = numbers_.data(), call_.places = places_.data(), call_.sequences = of_sequences_.data();
    call_.unit = unit_.data(), call_.M = M_.data(), call_.N = N_.data(), call_.reached = reached_.data();
    call_.prefill.prepared = prepared_.data(), call_.prefill.ready = ready_.data();
    call_.prefill.launches = launches_.data();
    check(cudaMemset(ready_.data(), 0, ready_.bytes()), "cudaMemset");
    check(cudaMemset(launches_.data(), 0, launches_.bytes()), "cudaMemset");
    const std::int64_t tokens = a.q.shape[0] * a.q.shape[1];
    if (call_.prefill.bulk && tokens > 0) {
      maps_ = {tile_map(p.q, tokens, p.Hk, p.dk), tile_map(p.k, tokens, p.Hk, p.dk),
               tile_map(p.v, tokens, p.Hv, p.dv), tile_map(p.o, tokens, p.Hv, p.dv)};
    }
    allow(maps_kernel(), sizeof(MapGridShared));
    allow(output_kernel, sizeof(StateShared));
    // The memory was written on the default stream, which the call's need not wait for.
    check(cudaDeviceSynchronize(), "the upload");
  }

  /// Returns the bytes of the tensors, without those of the workspace.
  [[nodiscard]] std::size_t bytes() const {
    return q_.bytes() + k_.bytes() + v_.bytes() + g_.bytes() + beta_.bytes() + incoming_.bytes() +
           o_.bytes() + final_state_.bytes();
  }

  /// Fills outputs and buffers with NaN, so that elements which are not written are noticed.
  void poison(cudaStream_t stream) const {
    o_.fill(0xff, stream);
    for (const DeviceBuffer<float>* x : {&final_state_, &M_, &N_, &reached_}) x->fill(0xff, stream);
  }

  void enqueue(cudaStream_t stream) const {
    if (call_.prefill.items() == 0) return;
    enqueue(maps_kernel(), map_grid_blocks(call_), sizeof(MapGridShared), stream);
    ranks::Compose<true>::launch(
        composition(call_, chains_.data(), order_.data(), sequences_, incoming_.data(), reached_.data()),
        stream);
    enqueue(output_kernel, output_grid_blocks(call_), sizeof(StateShared), stream);
  }

  void download(const Arguments& a) const {
    if (a.o.present()) scatter_tokens(o_.download(), a);
    if (a.final_state.present()) scatter(final_state_.download(), a.final_state);
  }

 private:
  static std::vector<float> identity(int n) {
    std::vector<float> x(static_cast<std::size_t>(n) * static_cast<std::size_t>(n), 0.0F);
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i)
      x[i * static_cast<std::size_t>(n) + i] = 1.0F;
    return x;
  }

  /// Chunks of the segments in what the helpers publish.
  [[nodiscard]] std::size_t slots(const Parameters<Bf16>& whole, const Arguments& a) const {
    Parameters<Bf16> p = whole;
    p.sequences = plan_.segments();
    return static_cast<std::size_t>(Prefill::slots(p, a.q.shape[0] * a.q.shape[1]));
  }

  [[nodiscard]] Launched maps_kernel() const { return norm_ ? map_kernel<true> : map_kernel<false>; }

  void enqueue(Launched kernel, std::int64_t blocks, std::size_t shared_bytes, cudaStream_t stream) const {
    kernel<<<static_cast<unsigned>(blocks), kSplitThreads, shared_bytes, stream>>>(call_, maps_);
    check(cudaGetLastError(), "the kernel of segments");
  }

  SegmentPlan plan_;
  std::int64_t sequences_;
  SegmentMemory memory_;
  DeviceBuffer<Bf16> q_, k_, v_;
  DeviceBuffer<float> g_, beta_;
  DeviceBuffer<Bf16> o_;
  DeviceBuffer<float> final_state_;
  DeviceBuffer<std::int64_t> offsets_;
  DeviceBuffer<int> numbers_, places_, of_sequences_;
  DeviceBuffer<ranks::Chain> chains_;
  DeviceBuffer<std::int64_t> order_;
  DeviceBuffer<float> unit_, M_, N_, reached_, incoming_;
  DeviceBuffer<Prepared> prepared_;
  DeviceBuffer<int> ready_, launches_;
  bool norm_;
  SegmentCall call_;
  Maps maps_{};
};

/// Calls work(sizes, packed) with the call's tensors in bf16.
template <const calls::System& system, class Work>
Outcome with_packed(const Arguments& a, const Contract& contract, Work&& work) {
  const calls::Sizes sizes = calls::checked_sizes(a);
  (void)calls::checked_cuts(a, sizes);
  if (std::string reason = refusal(system, true, a, contract); !reason.empty())
    return {Outcome::Kind::unsupported, std::move(reason)};
  const CallShape shape = shape_of(a, calls::longest_sequence(a, sizes), system.delta);
  if (choose(segment_rows(), shape, contract) == segment_rows().size())
    return {Outcome::Kind::unsupported, "contract " + contract.name +
                                            ": the kernel of segments keeps bf16_fused; use "
                                            "cuda." +
                                            std::string(system.name) + ".sequence_parallel"};
  if (const Device& found = device(); !found.info) return {Outcome::Kind::no_device, found.reason};
  if (!has_asynchronous_products())
    return {Outcome::Kind::no_device,
            "the kernel of segments needs compute capability 9.0; use contract bf16 of sequence_parallel"};
  work(sizes, pack<Bf16>(a, sizes, contract));
  return {};
}

template <const calls::System& system>
Outcome run(const Arguments& a, const Contract& contract) {
  return with_packed<system>(a, contract, [&](const calls::Sizes& sizes, const Packed<Bf16>& packed) {
    const SegmentedCall call(packed, a, sizes);
    call.poison(nullptr);
    call.enqueue(nullptr);
    check_launch("the kernel of segments");
    call.download(a);
  });
}

template <const calls::System& system>
Timing time(const Arguments& a, const Contract& contract, const TimingRequest& request) {
  Timing timing;
  if (!request.variant.empty() && row_named(segment_rows(), request.variant) == segment_rows().size()) {
    timing.outcome = {Outcome::Kind::unsupported, "variant " + request.variant + " does not take this call"};
    return timing;
  }
  Outcome outcome =
      with_packed<system>(a, contract, [&](const calls::Sizes& sizes, const Packed<Bf16>& packed) {
        std::vector<std::unique_ptr<SegmentedCall>> calls;
        calls.push_back(std::make_unique<SegmentedCall>(packed, a, sizes));
        const int copies = copies_beyond_cache(calls.front()->bytes(), request);
        while (std::ssize(calls) < copies) calls.push_back(std::make_unique<SegmentedCall>(packed, a, sizes));
        const auto at = [&](int copy) -> const SegmentedCall& {
          return *calls[static_cast<std::size_t>(copy)];
        };
        TimedCalls timed = measure(
            copies, request, [&](int copy, cudaStream_t stream) { at(copy).enqueue(stream); },
            [&](int copy, cudaStream_t stream) { at(copy).poison(stream); });
        at(timed.last_copy).download(a);
        timed.timing.variant = segment_rows().front().kernel;
        timing = timed.timing;
      });
  timing.outcome = std::move(outcome);
  return timing;
}

template <const calls::System& system>
void append(std::vector<Kernel>& table) {
  const std::string name(system.name);
  table.push_back({"cuda." + name + ".segmented",
                   name,
                   "sequence_parallel",
                   "cuda",
                   contracts_of(segment_rows()),
                   run<system>,
                   time<system>,
                   variants(segment_rows()),
                   {"dk <= " + std::to_string(kPrefillKeys), "chunk in 1.." + std::to_string(kChunkLimit)}});
}

}  // namespace
}  // namespace cuda

std::vector<Kernel> cuda_segment_kernels() {
  std::vector<Kernel> table;
  cuda::append<calls::GATED_DELTA_RULE>(table);
  cuda::append<calls::DELTA_RULE>(table);
  return table;
}

}  // namespace samestate

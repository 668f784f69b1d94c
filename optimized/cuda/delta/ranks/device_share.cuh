#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "optimized/cuda/delta/chunk_fma_dense.cuh"
#include "optimized/cuda/delta/chunk_wgmma_dense.cuh"
#include "optimized/cuda/delta/dense_call.h"
#include "optimized/cuda/delta/dense_launch.cuh"
#include "optimized/cuda/delta/ranks/shares.h"
#include "optimized/cuda/host/device_memory.cuh"

/// The work of one device of a host in a call over ranks.
namespace samestate::cuda::ranks {

/// The device is the thread's current one as long as this lives.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    check(cudaGetDevice(&before_), "cudaGetDevice");
    check(cudaSetDevice(device), "cudaSetDevice");
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaSetDevice(before_); }

 private:
  int before_ = 0;
};

/// A stream that waits for no other, and an event that marks a place in it.
struct Stream {
  Stream() {
    check(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaEventCreateWithFlags(&mark, cudaEventDisableTiming), "cudaEventCreate");
  }
  ~Stream() {
    cudaEventDestroy(mark);
    cudaStreamDestroy(handle);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  /// Makes the later work of this stream begin after the work that `other` has so far.
  void after(const Stream& other) const {
    check(cudaEventRecord(other.mark, other.handle), "cudaEventRecord");
    check(cudaStreamWaitEvent(handle, other.mark, 0), "cudaStreamWaitEvent");
  }
  cudaStream_t handle = nullptr;
  cudaEvent_t mark = nullptr;
};

/// A call of the chunked form by the row of chunked_rows() that takes its shape.
template <class Operand>
class ChunkedCall {
 public:
  /// `sequences` of the parameters with `tokens` in all and `longest` in one.
  ChunkedCall(const Parameters<Operand>& p, std::int64_t tokens, std::int64_t longest, bool delta,
              const Contract& contract);
  void enqueue(cudaStream_t stream) const;

 private:
  Parameters<Operand> parameters_;
  bool delta_;
  std::unique_ptr<PrefillCall> prefill_;
  std::unique_ptr<SimtCall> simt_;
};

/// The parts of one device: maps from their tokens alone, the states that reach them, their outputs. Made, used and
/// destroyed with its device current; everything is enqueued, nothing waits.
template <class Operand>
class DeviceShare {
 public:
  DeviceShare(const Share& share, const Packed<Operand>& packed, const Contract& contract, bool delta);

  /// Fills the outputs with NaN, so that anything left unwritten is NaN.
  void poison() const;
  void maps() const;
  void compose() const;
  void outputs() const;

  [[nodiscard]] const Stream& stream() const { return stream_; }
  [[nodiscard]] float* incoming(std::int64_t chain) const { return incoming_.data() + chain * state_; }
  [[nodiscard]] const float* outgoing(std::int64_t chain) const { return outgoing_.data() + chain * state_; }
  [[nodiscard]] std::size_t state_elements() const { return static_cast<std::size_t>(state_); }

  /// Rows of o and final states to their places among the call's.
  void download(std::vector<Operand>& o, std::vector<float>& final_state) const;

 private:
  void upload(const Packed<Operand>& packed) const;

  Share share_;
  bool delta_;
  std::int64_t passing_tokens_, columns_, state_;  ///< columns of M; elements of the states of a sequence
  Parameters<Operand> parameters_;
  Stream stream_, beside_;
  DeviceBuffer<Operand> q_, k_, v_, o_, no_values_, no_output_;
  DeviceBuffer<float> g_, beta_, unit_, M_, N_, incoming_, reached_, outgoing_, final_state_;
  DeviceBuffer<std::int64_t> offsets_, order_;
  DeviceBuffer<Chain> chains_;
  std::unique_ptr<ChunkedCall<Operand>> map_M_, map_N_, outputs_;
};

extern template class DeviceShare<float>;
extern template class DeviceShare<Bf16>;

}  // namespace samestate::cuda::ranks

#include "optimized/cuda/backward/backward_kernels.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "optimized/backward_call.h"
#include "optimized/cuda/backward/launch.cuh"
#include "optimized/cuda/delta/dense_call.h"
#include "optimized/cuda/host/fp16_operands.h"
#ifdef __CUDACC__
#include "optimized/cuda/host/device.cuh"
#include "optimized/cuda/host/measure.cuh"
#endif

/// Rows of the table: the backward passes in chunks.
namespace samestate::cuda {
namespace {

using calls::BackwardArguments;
using calls::Sizes;
using calls::System;

/// The chunks of all sequences, those of one after those of another, and where those of each begin.
struct ChunkList {
  std::vector<BackwardChunk> chunks;
  std::vector<BackwardSequence> sequences;
  std::int64_t first_row = 0, rows = 0;  ///< of all sequences

  ChunkList(const Arguments& a, const Sizes& sizes) {
    for (std::int64_t n = 0; n < sizes.sequences; ++n) {
      const calls::SequenceTokens of = calls::tokens_of(a, sizes, n);
      const std::int64_t first = of.batch * sizes.tokens + of.first, begin = std::ssize(chunks);
      if (n == 0) first_row = first;
      for (std::int64_t t = 0; t < of.count; t += a.chunk)
        chunks.push_back({first + t, std::min(a.chunk, of.count - t)});
      sequences.push_back({begin, std::ssize(chunks) - begin});
      rows = first + of.count - first_row;
    }
  }
};

/// One call on the device, its tensors uploaded on construction.
template <class Operand>
class BackwardOnDevice {
 public:
  BackwardOnDevice(const System& system, const BackwardArguments& a, const Sizes& sizes, KeptFormat kept)
      : list_(a.forward, sizes),
        chunks_(list_.chunks),
        sequences_(list_.sequences),
        q_(dense<Operand>(a.forward.q)),
        k_(dense<Operand>(a.forward.k)),
        v_(dense<Operand>(a.forward.v)),
        d_o_(dense<Operand>(a.d_o)),
        g_(dense<float>(a.forward.g)),
        beta_(dense<float>(a.forward.beta)),
        initial_state_(dense<float>(a.forward.initial_state)),
        d_final_state_(dense<float>(a.d_final_state)) {
    BackwardParameters<Operand>& p = parameters_;
    p.Hk = sizes.key_heads, p.Hv = sizes.value_heads;
    p.dk = static_cast<int>(sizes.dk), p.dv = static_cast<int>(sizes.dv);
    p.chunk_count = std::ssize(list_.chunks), p.sequence_count = sizes.sequences;
    p.first_row = list_.first_row, p.rows = list_.rows;
    // No sequence is longer than T, so no chunk is either.
    p.chunk = static_cast<int>(
        std::clamp<std::int64_t>(a.forward.chunk, 1, std::max<std::int64_t>(sizes.tokens, 1)));
    p.tile = p.dv <= 16 ? 16 : 32;
    p.scale = a.forward.scale;
    p.delta = system.delta;
    p.tiled_heads = a.forward.head_map == HeadMap::tiled;
    p.kept = kept;
    p.chunks = chunks_.data(), p.sequences = sequences_.data();
    p.q = q_.data(), p.k = k_.data(), p.v = v_.data(), p.d_o = d_o_.data();
    p.g = g_.data(), p.beta = beta_.data();
    p.initial_state = initial_state_.data(), p.d_final_state = d_final_state_.data();
    const std::int64_t rows = sizes.batch * sizes.tokens;
    if (a.d_q.present()) p.d_q = output<Operand>(rows * p.Hk * p.dk);
    if (a.d_k.present()) p.d_k = output<Operand>(rows * p.Hk * p.dk);
    if (a.d_v.present()) p.d_v = output<Operand>(rows * p.Hv * p.dv);
    if (a.d_g.present()) p.d_g = output<float>(rows * p.Hv);
    if (a.d_beta.present()) p.d_beta = output<float>(rows * p.Hv);
    if (a.d_initial_state.present()) p.d_initial_state = output<float>(a.d_initial_state.size());
    make_scratch(a, rows);
  }

  [[nodiscard]] std::size_t bytes() const {
    std::size_t sum = q_.bytes() + k_.bytes() + v_.bytes() + d_o_.bytes() + g_.bytes() + beta_.bytes() +
                      initial_state_.bytes() + d_final_state_.bytes();
    for (const auto& buffer : outputs_) sum += buffer->bytes();
    for (const auto& buffer : scratch_) sum += buffer->bytes();
    return sum;
  }

  /// Fills outputs and scratch with NaN, so that anything left unwritten is NaN.
  void poison(cudaStream_t stream) const {
    for (const auto& buffer : outputs_) buffer->fill(0xff, stream);
    for (const auto& buffer : scratch_) buffer->fill(0xff, stream);
  }

  void enqueue(cudaStream_t stream) const { launch_backward(parameters_, stream); }

  /// Rows that no sequence owns are left as they are.
  void download(const BackwardArguments& a) const {
    const auto& p = parameters_;
    auto next = outputs_.begin();
    const auto rows_to = [&](const auto& view, auto element, std::int64_t width) {
      if (view.present()) write_rows(values<decltype(element)>(**next++), view, width);
    };
    rows_to(a.d_q, Operand{}, p.Hk * p.dk);
    rows_to(a.d_k, Operand{}, p.Hk * p.dk);
    rows_to(a.d_v, Operand{}, p.Hv * p.dv);
    rows_to(a.d_g, float{}, p.Hv);
    rows_to(a.d_beta, float{}, p.Hv);
    if (a.d_initial_state.present()) scatter(values<float>(**next), a.d_initial_state);
  }

 private:
  using Bytes = DeviceBuffer<std::byte>;

  template <class T>
  T* allocate(std::vector<std::unique_ptr<Bytes>>& in, std::int64_t size) {
    in.push_back(std::make_unique<Bytes>(static_cast<std::size_t>(size) * sizeof(T)));
    return reinterpret_cast<T*>(in.back()->data());
  }
  template <class T>
  T* output(std::int64_t size) {
    return allocate<T>(outputs_, size);
  }
  template <class T>
  T* scratch(std::int64_t size) {
    return allocate<T>(scratch_, size);
  }

  void make_scratch(const BackwardArguments& a, std::int64_t rows) {
    BackwardParameters<Operand>& p = parameters_;
    const std::int64_t keys = rows * p.Hv * p.dk, values = rows * p.Hv * p.dv,
                       states = p.chunk_count * p.Hv * p.dk * p.dv, padded = p.padded_chunk();
    p.sums = scratch<float>(rows * p.Hv);
    p.d_n = scratch<Operand>(values);
    p.states = scratch<Operand>(states), p.d_states = scratch<Operand>(states);
    p.q_part = scratch<Operand>(keys), p.k_part = scratch<Operand>(keys);
    if (p.delta) {
      p.inverse = scratch<Operand>(p.chunk_count * p.Hv * padded * padded);
      p.w = scratch<Operand>(keys), p.n = scratch<Operand>(values);
      p.k_correction = scratch<Operand>(keys);
    }
    if (!a.forward.l2norm) return;
    p.raw_q = p.q, p.raw_k = p.k;
    p.q = p.normalised_q = scratch<Operand>(rows * p.Hk * p.dk);
    p.k = p.normalised_k = scratch<Operand>(rows * p.Hk * p.dk);
  }

  template <class T>
  static std::vector<T> values(const Bytes& from) {
    const std::vector<std::byte> bytes = from.download();
    std::vector<T> out(bytes.size() / sizeof(T));
    std::copy_n(bytes.data(), bytes.size(), reinterpret_cast<std::byte*>(out.data()));
    return out;
  }

  /// Rows of `width` elements of tokens, to those that sequences own.
  template <class T, std::size_t rank>
  void write_rows(const std::vector<T>& from, const View<float, rank>& to, std::int64_t width) const {
    const std::int64_t T_of = to.shape[1], last = to.shape[rank - 1];
    for (std::int64_t row = list_.first_row; row < list_.first_row + list_.rows; ++row) {
      for (std::int64_t i = 0; i < width; ++i) {
        const float x = loaded(from[static_cast<std::size_t>(row * width + i)]);
        if constexpr (rank == 3)
          to(row / T_of, row % T_of, i) = x;
        else
          to(row / T_of, row % T_of, i / last, i % last) = x;
      }
    }
  }

  ChunkList list_;
  DeviceBuffer<BackwardChunk> chunks_;
  DeviceBuffer<BackwardSequence> sequences_;
  DeviceBuffer<Operand> q_, k_, v_, d_o_;
  DeviceBuffer<float> g_, beta_, initial_state_, d_final_state_;
  std::vector<std::unique_ptr<Bytes>> outputs_, scratch_;  ///< outputs in the order of BackwardArguments
  BackwardParameters<Operand> parameters_;
};

/// The reason why the device does not run this call, naming the limit; empty if it does.
std::string backward_refusal(const System& system, const BackwardArguments& a, const Contract& contract) {
  if (std::string reason = calls::unsupported_reason(system, a, contract); !reason.empty()) return reason;
  const Format format = contract.input;
  const bool known = format == Format::fp32 || format == Format::bf16 || format == Format::fp16;
  if (!known || contract.output != format || (contract.qk != format && contract.qk != Format::fp32))
    return "contract " + contract.name +
           ": the backward CUDA kernels keep fp32, bf16 and fp16; choose one of them";
  if (a.forward.q.shape[3] > kKeyLimit)
    return "dk=" + std::to_string(a.forward.q.shape[3]) + ": the backward CUDA kernels take dk up to " +
           std::to_string(kKeyLimit);
  if (a.forward.chunk < 1 || a.forward.chunk > kChunkLimit)
    return "chunk=" + std::to_string(a.forward.chunk) + ": the backward CUDA kernels take chunks of 1 to " +
           std::to_string(kChunkLimit);
  return {};
}

/// Calls `work(system, arguments, sizes, operand, kept)` with a value of the type of operands. Rows of unit length are no numbers
/// of 16 bits, and a tensor core would round them where the contract says nothing: they take the kernels of fp32 operands,
/// which round results as the contract says.
template <const System& system, class Work>
Outcome with_operand(const KernelCall& call, const Contract& contract, Work&& work) {
  const BackwardArguments a = calls::backward_arguments_of(call);
  const Sizes sizes = calls::checked_sizes(a);
  if (std::string reason = backward_refusal(system, a, contract); !reason.empty())
    return {Outcome::Kind::unsupported, std::move(reason)};
  if (const Device& found = device(); !found.info) return {Outcome::Kind::no_device, found.reason};
  const auto with = [&](auto operand, KeptFormat kept) { work(a, sizes, operand, kept); };
  if (contract.input == Format::fp32)
    with(float{}, KeptFormat::fp32);
  else if (contract.input == Format::bf16)
    a.forward.l2norm ? with(float{}, KeptFormat::bf16) : with(Bf16{}, KeptFormat::bf16);
  else
    a.forward.l2norm ? with(float{}, KeptFormat::fp16) : with(Fp16{}, KeptFormat::fp16);
  return {};
}

template <const System& system>
Outcome run_backward(const KernelCall& call, const Contract& contract) {
  return with_operand<system>(
      call, contract, [](const BackwardArguments& a, const Sizes& sizes, auto operand, KeptFormat kept) {
        const BackwardOnDevice<decltype(operand)> one(system, a, sizes, kept);
        one.poison(nullptr);
        one.enqueue(nullptr);
        check_launch("the backward kernels");
        one.download(a);
      });
}

#ifdef __CUDACC__
template <const System& system>
Timing time_backward(const KernelCall& call, const Contract& contract, const TimingRequest& request) {
  Timing timing;
  Outcome outcome = with_operand<system>(
      call, contract, [&](const BackwardArguments& a, const Sizes& sizes, auto operand, KeptFormat kept) {
        using OnDevice = BackwardOnDevice<decltype(operand)>;
        std::vector<std::unique_ptr<OnDevice>> calls;
        calls.push_back(std::make_unique<OnDevice>(system, a, sizes, kept));
        const int copies = copies_beyond_cache(calls.front()->bytes(), request);
        while (std::ssize(calls) < copies)
          calls.push_back(std::make_unique<OnDevice>(system, a, sizes, kept));
        const auto at = [&](int copy) -> const OnDevice& { return *calls[static_cast<std::size_t>(copy)]; };
        TimedCalls timed = measure(
            copies, request, [&](int copy, cudaStream_t stream) { at(copy).enqueue(stream); },
            [&](int copy, cudaStream_t stream) { at(copy).poison(stream); });
        at(timed.last_copy).download(a);
        timing = timed.timing;
      });
  timing.outcome = std::move(outcome);
  return timing;
}
#endif

template <const System& system>
CallKernel row_of() {
  const std::string name = std::string(system.name) + ".backward";
  CallKernel row{"cuda." + name + ".chunked", name, "chunked", "cuda", {"fp32", "bf16", "fp16"}};
  row.run = run_backward<system>;
#ifdef __CUDACC__
  row.time = time_backward<system>;
#endif
  row.limits = {"dk <= " + std::to_string(kKeyLimit), "chunk in 1.." + std::to_string(kChunkLimit)};
  return row;
}

}  // namespace

std::vector<CallKernel> backward_kernels() {
  return {row_of<calls::GATED_DELTA_RULE>(), row_of<calls::DELTA_RULE>(), row_of<calls::RETENTION>(),
          row_of<calls::LINEAR_ATTENTION>()};
}

}  // namespace samestate::cuda

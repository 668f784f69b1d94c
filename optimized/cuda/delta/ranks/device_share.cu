#include "optimized/cuda/delta/ranks/device_share.cuh"

#include <algorithm>
#include <type_traits>

#include "optimized/cuda/delta/chunk_dense_table.h"

namespace samestate::cuda::ranks {
namespace {

std::size_t product(std::int64_t x, std::int64_t y) { return static_cast<std::size_t>(x * y); }

void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (bytes > 0) check(cudaMemcpy(to, from, bytes, kind), "cudaMemcpy of a part");
}

}  // namespace

template <class Operand>
ChunkedCall<Operand>::ChunkedCall(const Parameters<Operand>& p, std::int64_t tokens, std::int64_t longest,
                                  bool delta, const Contract& contract)
    : parameters_(p), delta_(delta) {
  const std::size_t row =
      choose(chunked_rows(), CallShape{p.sequences, longest, p.Hv, p.dk, p.dv, p.chunk, true, delta, tokens},
             contract);
  if constexpr (std::is_same_v<Operand, Bf16>) {
    if (row < kMmaRow) prefill_ = std::make_unique<PrefillCall>(p, tokens, delta, row);
  } else {
    if (row == kMmaRow || row == kSimtRow)
      simt_ = std::make_unique<SimtCall>(p, tokens, delta, row == kMmaRow);
  }
}

template <class Operand>
void ChunkedCall<Operand>::enqueue(cudaStream_t stream) const {
  if (prefill_)
    prefill_->launch(stream);
  else if (simt_)
    simt_->launch(stream);
  else
    launch_chunked(parameters_, delta_, stream);
}

template <class Operand>
DeviceShare<Operand>::DeviceShare(const Share& share, const Packed<Operand>& packed, const Contract& contract,
                                  bool delta)
    : share_(share),
      delta_(delta),
      passing_tokens_(share.offsets[static_cast<std::size_t>(share.passing)]),
      columns_(delta ? packed.parameters.dk : 1),
      state_(packed.parameters.Hv * packed.parameters.dk * packed.parameters.dv),
      parameters_(packed.parameters),
      q_(product(share.tokens(), parameters_.Hk * parameters_.dk)),
      k_(product(share.tokens(), parameters_.Hk * parameters_.dk)),
      v_(product(share.tokens(), parameters_.Hv * parameters_.dv)),
      o_(product(share.tokens(), parameters_.Hv * parameters_.dv)),
      no_values_(product(passing_tokens_, parameters_.Hv * columns_)),
      no_output_(product(passing_tokens_, parameters_.Hv * columns_)),
      g_(packed.g.empty() ? 0 : product(share.tokens(), parameters_.Hv)),
      beta_(packed.beta.empty() ? 0 : product(share.tokens(), parameters_.Hv)),
      unit_(product(share.passing, parameters_.Hv * parameters_.dk * columns_)),
      M_(product(share.passing, parameters_.Hv * parameters_.dk * columns_)),
      N_(product(share.passing, state_)),
      incoming_(product(std::ssize(share.chains), state_)),
      reached_(product(std::ssize(share.parts), state_)),
      outgoing_(product(std::ssize(share.chains), state_)),
      final_state_(product(std::ssize(share.parts), state_)),
      offsets_(share.offsets),
      order_(share.order),
      chains_(share.chains) {
  upload(packed);
  no_values_.fill(0, nullptr);
  EachThread<Unit>::launch({unit_.data(), share.passing * parameters_.Hv, parameters_.dk, columns_}, nullptr);
  Parameters<Operand>& p = parameters_;
  p.q = q_.data(), p.k = k_.data(), p.v = v_.data(), p.g = g_.data(), p.beta = beta_.data();
  p.cu_seqlens = offsets_.data();
  p.o = o_.data();
  p.sequences = std::ssize(share.parts);
  p.T = share.tokens();
  p.initial_state = reached_.data(), p.final_state = final_state_.data();
  const std::int64_t longest = share.longest(p.sequences), longest_passing = share.longest(share.passing);
  if (p.sequences > 0)
    outputs_ = std::make_unique<ChunkedCall<Operand>>(p, share.tokens(), longest, delta, contract);
  if (share.passing > 0) {
    Parameters<Operand> n = p;
    n.sequences = share.passing;
    n.T = passing_tokens_;
    n.initial_state = nullptr, n.final_state = N_.data();
    map_N_ = std::make_unique<ChunkedCall<Operand>>(n, passing_tokens_, longest_passing, delta, contract);
    Parameters<Operand> m = n;
    m.dv = static_cast<int>(columns_);
    m.v = no_values_.data(), m.o = no_output_.data();
    m.initial_state = unit_.data(), m.final_state = M_.data();
    map_M_ = std::make_unique<ChunkedCall<Operand>>(m, passing_tokens_, longest_passing, delta, contract);
  }
  // Uploads may end after the call that began them, and these streams do not wait for them.
  check(cudaDeviceSynchronize(), "the upload");
}

template <class Operand>
void DeviceShare<Operand>::upload(const Packed<Operand>& packed) const {
  const auto tokens = [&](const auto& to, const auto& from, std::int64_t width) {
    if (from.empty()) return;
    for (std::size_t i = 0; i < share_.parts.size(); ++i) {
      const Held& held = share_.parts[i];
      copy(to.data() + share_.offsets[i] * width, from.data() + held.row * width,
           product(held.part.end - held.part.begin, width) * sizeof(from[0]), cudaMemcpyHostToDevice);
    }
  };
  const Parameters<Operand>& p = packed.parameters;
  tokens(q_, packed.q, p.Hk * p.dk);
  tokens(k_, packed.k, p.Hk * p.dk);
  tokens(v_, packed.v, p.Hv * p.dv);
  tokens(g_, packed.g, p.Hv);
  tokens(beta_, packed.beta, p.Hv);
  incoming_.fill(0, nullptr);
  if (packed.initial_state.empty()) return;
  for (std::size_t chain = 0; chain < share_.chains.size(); ++chain) {
    if (!share_.begins[chain]) continue;
    copy(incoming(static_cast<std::int64_t>(chain)),
         packed.initial_state.data() + share_.sequences[chain] * state_, state_elements() * sizeof(float),
         cudaMemcpyHostToDevice);
  }
}

template <class Operand>
void DeviceShare<Operand>::poison() const {
  o_.fill(0xff, stream_.handle);
  for (const DeviceBuffer<float>* x : {&M_, &N_, &reached_, &outgoing_, &final_state_})
    x->fill(0xff, stream_.handle);
  for (std::size_t chain = 0; chain < share_.chains.size(); ++chain) {
    if (!share_.begins[chain])
      check(cudaMemsetAsync(incoming(static_cast<std::int64_t>(chain)), 0xff,
                            state_elements() * sizeof(float), stream_.handle),
            "cudaMemsetAsync");
  }
}

template <class Operand>
void DeviceShare<Operand>::maps() const {
  if (!map_N_) return;
  beside_.after(stream_);
  map_M_->enqueue(beside_.handle);
  map_N_->enqueue(stream_.handle);
  stream_.after(beside_);
}

template <class Operand>
void DeviceShare<Operand>::compose() const {
  ComposeParameters p;
  p.chains = chains_.data(), p.order = order_.data();
  p.M = M_.data(), p.N = N_.data();
  p.incoming = incoming_.data(), p.reached = reached_.data(), p.outgoing = outgoing_.data();
  p.count = std::ssize(share_.chains), p.passing = share_.passing;
  p.Hv = parameters_.Hv, p.dk = parameters_.dk, p.dv = parameters_.dv;
  delta_ ? Compose<true>::launch(p, stream_.handle) : Compose<false>::launch(p, stream_.handle);
}

template <class Operand>
void DeviceShare<Operand>::outputs() const {
  if (outputs_) outputs_->enqueue(stream_.handle);
}

template <class Operand>
void DeviceShare<Operand>::download(std::vector<Operand>& o, std::vector<float>& final_state) const {
  const std::int64_t width = parameters_.Hv * parameters_.dv;
  for (std::size_t i = 0; i < share_.parts.size(); ++i) {
    const Held& held = share_.parts[i];
    if (!o.empty())
      copy(o.data() + held.row * width, o_.data() + share_.offsets[i] * width,
           product(held.part.end - held.part.begin, width) * sizeof(Operand), cudaMemcpyDeviceToHost);
    if (!held.part.passes_on && !final_state.empty())
      copy(final_state.data() + held.part.sequence * state_,
           final_state_.data() + static_cast<std::int64_t>(i) * state_, state_elements() * sizeof(float),
           cudaMemcpyDeviceToHost);
  }
}

template class DeviceShare<float>;
template class DeviceShare<Bf16>;

}  // namespace samestate::cuda::ranks

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "optimized/cuda/delta/ranks/device_share.cuh"
#include "optimized/cuda/delta/ranks/exchange.cuh"
#include "optimized/cuda/delta/ranks/rank_kernels.h"
#include "optimized/cuda/host/device.cuh"

namespace samestate {
namespace cuda::ranks {
namespace {

/// A call on the devices of this process.
template <class Operand>
class Call {
 public:
  Call(const Arguments& a, const calls::Sizes& sizes, const Contract& contract, bool delta)
      : exchange_(Exchange::of_process()) {
    const std::vector<std::int64_t> cuts = calls::checked_cuts(a, sizes);
    const std::size_t devices = std::min(exchange_.devices(), cuts.size() - 1);
    Division division = divide(a, sizes, cuts, devices);
    handovers_ = std::move(division.handovers);
    const Packed<Operand> packed = pack<Operand>(a, sizes, contract);
    for (std::size_t d = 0; d < devices; ++d) {
      const OnDevice here(static_cast<int>(d));
      shares_.push_back(std::make_unique<DeviceShare<Operand>>(division.shares[d], packed, contract, delta));
    }
  }

  ~Call() {
    for (std::size_t d = 0; d < shares_.size(); ++d) on(d, [&](auto&) { shares_[d].reset(); });
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  [[nodiscard]] std::size_t devices() const { return shares_.size(); }

  void poison() const {
    each([](const DeviceShare<Operand>& share) { share.poison(); });
  }

  /// Each device sends a state as soon as it has composed it, before it begins with its outputs.
  void enqueue() const {
    each([](const DeviceShare<Operand>& share) { share.maps(); });
    auto next = handovers_.begin();
    for (std::size_t d = 0; d < shares_.size(); ++d) {
      if (next != handovers_.end() && next->to == d) {
        exchange_.begin();
        for (; next != handovers_.end() && next->to == d; ++next) hand_over(*next);
        exchange_.end();
      }
      on(d, [](const DeviceShare<Operand>& share) { share.compose(); });
    }
    each([](const DeviceShare<Operand>& share) { share.outputs(); });
  }

  void wait() const {
    each([](const DeviceShare<Operand>&) { check_launch("sequence_parallel"); });
  }

  void download(const Arguments& a) const {
    std::vector<Operand> o(static_cast<std::size_t>(a.o.present() ? a.o.size() : 0));
    std::vector<float> final_state(
        static_cast<std::size_t>(a.final_state.present() ? a.final_state.size() : 0));
    each([&](const DeviceShare<Operand>& share) { share.download(o, final_state); });
    if (a.o.present()) scatter_tokens(o, a);
    if (a.final_state.present()) scatter(final_state, a.final_state);
  }

 private:
  template <class Work>
  void on(std::size_t d, Work&& work) const {
    const OnDevice here(static_cast<int>(d));
    work(*shares_[d]);
  }
  template <class Work>
  void each(Work&& work) const {
    for (std::size_t d = 0; d < shares_.size(); ++d) on(d, work);
  }

  void hand_over(const Handover& x) const {
    const DeviceShare<Operand>&from = *shares_[x.from], &to = *shares_[x.to];
    exchange_.send(from.outgoing(x.sent), from.state_elements(), x.from, x.to, from.stream().handle);
    exchange_.receive(to.incoming(x.received), to.state_elements(), x.to, x.from, to.stream().handle);
  }

  const Exchange& exchange_;
  std::vector<Handover> handovers_;
  std::vector<std::unique_ptr<DeviceShare<Operand>>> shares_;
};

/// Communicators take one call at a time.
std::mutex& turn() {
  static std::mutex mutex;
  return mutex;
}

/// Calls work(call) with the call on its devices.
template <const calls::System& system, class Work>
Outcome with_call(const Arguments& a, const Contract& contract, Work&& work) {
  const calls::Sizes sizes = calls::checked_sizes(a);
  (void)calls::checked_cuts(a, sizes);
  if (std::string reason = refusal(system, true, a, contract); !reason.empty())
    return {Outcome::Kind::unsupported, std::move(reason)};
  if (const Device& found = device(); !found.info) return {Outcome::Kind::no_device, found.reason};
  if (keeps_prefill(contract) && !has_asynchronous_products()) {
    return {
        Outcome::Kind::no_device,
        "contract " + contract.name + ": the prefill kernels need compute capability 9.0; use contract bf16"};
  }
  const std::lock_guard lock(turn());
  if (contract.output == Format::bf16) {
    work(Call<Bf16>(a, sizes, contract, system.delta));
  } else {
    work(Call<float>(a, sizes, contract, system.delta));
  }
  return {};
}

template <const calls::System& system>
Outcome run(const Arguments& a, const Contract& contract) {
  return with_call<system>(a, contract, [&](const auto& call) {
    call.poison();
    call.enqueue();
    call.wait();
    call.download(a);
  });
}

/// Uses the wall clock, since an event cannot span several devices.
template <const calls::System& system>
Timing time(const Arguments& a, const Contract& contract, const TimingRequest& request) {
  using Clock = std::chrono::steady_clock;
  Timing timing;
  timing.outcome = with_call<system>(a, contract, [&](const auto& call) {
    const auto once = [&] {
      const Clock::time_point begin = Clock::now();
      call.enqueue();
      call.wait();
      return std::chrono::duration<double>(Clock::now() - begin).count();
    };
    for (int i = 0; i < std::max(request.warm_up, 1); ++i) once();
    double taken = 0.0;
    const int least = std::max(request.least_samples, 1), most = std::max(request.most_samples, 1);
    while (std::ssize(timing.seconds) + 1 < most &&
           (taken < request.seconds || std::ssize(timing.seconds) + 1 < least)) {
      timing.seconds.push_back(once());
      taken += timing.seconds.back();
    }
    call.poison();
    call.wait();
    timing.seconds.push_back(once());
    timing.how = "wall clock, " + std::to_string(call.devices()) +
                 (call.devices() == 1 ? " device" : " devices, " + Exchange::of_process().name());
    call.download(a);
  });
  return timing;
}

template <const calls::System& system>
void append(std::vector<Kernel>& table) {
  const std::string name(system.name);
  table.push_back({"cuda." + name + ".sequence_parallel",
                   name,
                   "sequence_parallel",
                   "cuda",
                   contracts_of(chunked_rows()),
                   run<system>,
                   time<system>,
                   {},
                   chunked_limits()});
}

}  // namespace
}  // namespace cuda::ranks

std::vector<Kernel> cuda_rank_kernels() {
  std::vector<Kernel> table;
  cuda::ranks::append<calls::GATED_DELTA_RULE>(table);
  cuda::ranks::append<calls::DELTA_RULE>(table);
  cuda::ranks::append<calls::RETENTION>(table);
  cuda::ranks::append<calls::LINEAR_ATTENTION>(table);
  return table;
}

}  // namespace samestate

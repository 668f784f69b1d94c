#include "measure/bench/ceilings.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "harness/cases/systems.h"
#include "harness/run/judge_batch.h"
#include "reference/costs/call.h"
#ifdef SAMESTATE_HAVE_CUDA
#include "optimized/cuda/cuda_kernels.h"
#endif

namespace samestate {
namespace {

costs::Count bytes_of(Format format) {
  return format == Format::bf16 || format == Format::fp16 ? 2 : format == Format::fp64 ? 8 : 4;
}

costs::CallConfig call_of(const Case& c, bool on_device) {
  const Family& family = *system_named(c.system).family;
  const Contract contract = contract_of(c);
  costs::CallConfig call;
  call.head.key_width = c.dk;
  call.head.value_width = c.dv;
  call.head.delta = family.delta;
  call.head.decay = family.gated;
  call.head.gates = (family.delta ? 1 : 0) + (family.gated ? 1 : 0);
  call.head.operand_bytes = on_device ? bytes_of(contract.input) : 4;
  call.head.state_bytes = on_device ? bytes_of(contract.state) : 4;
  call.output_bytes = on_device ? bytes_of(contract.output) : 4;
  call.key_heads = c.Hk;
  call.value_heads = c.Hv;
  call.lengths =
      c.lengths.empty() ? std::vector<costs::Count>(static_cast<std::size_t>(c.B), c.T) : c.lengths;
  call.initial_state = c.state == "random";
  return call;
}

double product_rate(const Case& c, const Ceilings& ceilings) {
  if (runs_recurrent_only(c)) return ceilings.fp32;
  switch (contract_of(c).state_operand) {
    case Format::bf16:
    case Format::fp16:
      return ceilings.bf16;
    case Format::fp32:
      return ceilings.fp32;
    default:
      return 0.0;
  }
}

}  // namespace

Ceilings host_ceilings(std::int64_t bytes, int threads) {
  constexpr double kSeconds = 10e-3;  // of copies, for each number of threads
  constexpr int kLeast = 3;
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes / 2, 1));
  const std::vector<char> from(size, 1);
  std::vector<char> to(size, 2);
  double best = 0.0;
  for (const std::size_t parts : {std::size_t{1}, static_cast<std::size_t>(std::max(threads, 1))}) {
    const auto part = [&](std::size_t i) {
      std::memcpy(to.data() + size * i / parts, from.data() + size * i / parts,
                  size * (i + 1) / parts - size * i / parts);
    };
    double total = 0.0;
    for (int i = 0; i < kLeast || total < kSeconds; ++i) {
      const auto start = std::chrono::steady_clock::now();
      {
        std::vector<std::jthread> helpers;
        for (std::size_t p = 1; p < parts; ++p) helpers.emplace_back(part, p);
        part(0);
      }
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      total += seconds;
      best = std::max(best, 2.0 * static_cast<double>(size) / std::max(seconds, 1e-9));
    }
  }
  return {best, 0.0, 0.0,
          "a copy of the case's own bytes, cached as they are; no floor of arithmetic on a CPU"};
}

std::int64_t bytes_of_call(const Case& c, bool on_device) { return costs::call_bytes(call_of(c, on_device)); }

Ceilings device_ceilings() {
#ifdef SAMESTATE_HAVE_CUDA
  if (!cuda_device()) return {0.0, 0.0, 0.0, "no CUDA device: no floor"};
  const DeviceCeilings measured = measure_ceilings();
  return {measured.copy, measured.bf16, measured.fp32, measured.note};
#else
  return {0.0, 0.0, 0.0, "this build has no CUDA: no floor"};
#endif
}

void add_floor(TimedCase& timed, const Case& c, const Ceilings& ceilings, bool on_device) {
  const costs::CallConfig call = call_of(c, on_device);
  timed.bytes = costs::call_bytes(call);
  timed.operations = costs::call_flops(call, runs_recurrent_only(c) ? 0 : c.chunk);
  timed.copy_rate = ceilings.copy;
  timed.product_rate = product_rate(c, ceilings);
  timed.ceilings = ceilings.note;
  if (timed.copy_rate > 0.0) timed.memory_floor = static_cast<double>(timed.bytes) / timed.copy_rate;
  if (timed.product_rate > 0.0)
    timed.compute_floor = static_cast<double>(timed.operations) / timed.product_rate;
}

}  // namespace samestate

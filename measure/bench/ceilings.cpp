#include "measure/bench/ceilings.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "harness/cases/case_cost.h"
#ifdef SAMESTATE_HAVE_CUDA
#include "optimized/cuda/cuda_kernels.h"
#endif

namespace samestate {
namespace {

double product_rate(Format operands, const Ceilings& ceilings) {
  return operands == Format::bf16 ? ceilings.bf16 : operands == Format::fp32 ? ceilings.fp32 : 0.0;
}

}  // namespace

Ceilings host_ceilings(std::int64_t bytes, int threads) {
  constexpr double kSeconds = 10e-3;  // seconds of copies for each number of threads
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

std::int64_t bytes_of_call(const Resolved& r, bool on_device) { return r.system->cost(r, on_device).bytes; }

Ceilings device_ceilings() {
#ifdef SAMESTATE_HAVE_CUDA
  if (!cuda_device()) return {0.0, 0.0, 0.0, "no CUDA device: no floor"};
  const DeviceCeilings measured = measure_ceilings();
  return {measured.copy, measured.bf16, measured.fp32, measured.note};
#else
  return {0.0, 0.0, 0.0, "this build has no CUDA: no floor"};
#endif
}

void add_floor(TimedCase& timed, const Resolved& r, const Ceilings& ceilings, bool on_device) {
  const CaseCost cost = r.system->cost(r, on_device);
  timed.bytes = cost.bytes;
  timed.operations = cost.operations;
  timed.copy_rate = ceilings.copy;
  timed.product_rate = product_rate(cost.operands, ceilings);
  timed.ceilings = ceilings.note;
  if (timed.copy_rate > 0.0) timed.memory_floor = static_cast<double>(timed.bytes) / timed.copy_rate;
  if (timed.product_rate > 0.0 && timed.operations > 0)
    timed.compute_floor = static_cast<double>(timed.operations) / timed.product_rate;
}

}  // namespace samestate

// What a call costs beyond its kernel: a subject that does nothing, by the elements of a tensor.
// usage: SUBJECT=SPEC subject_benchmark; SPEC as behind --subject, its one kernel of the gated delta rule.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <vector>

#include "harness/subjects/c_library.h"
#include "oracles/contracts.h"

namespace samestate {
namespace {

void overhead(benchmark::State& state) {
  const char* spec = std::getenv("SUBJECT");
  if (spec == nullptr) {
    state.SkipWithError("SUBJECT is not set");
    return;
  }
  static const Subject subject =
      is_c_subject(spec) ? load_c_subject(spec) : load_subject(spec, patience_of_environment());
  const Kernel& kernel = subject.rows.kernels.front();
  constexpr std::int64_t kWidth = 64;
  const std::int64_t T = state.range(0) / kWidth;
  const auto floats = [](std::int64_t size) {
    return std::vector<float>(static_cast<std::size_t>(size), 0.25F);
  };
  std::vector<float> q = floats(T * kWidth), k = q, v = q, o = q, g = floats(T), beta = g,
                     final_state = floats(kWidth * kWidth);
  Arguments a;
  a.q = row_major<const float, 4>(q.data(), {1, T, 1, kWidth});
  a.k = row_major<const float, 4>(k.data(), {1, T, 1, kWidth});
  a.v = row_major<const float, 4>(v.data(), {1, T, 1, kWidth});
  a.g = row_major<const float, 3>(g.data(), {1, T, 1});
  a.beta = row_major<const float, 3>(beta.data(), {1, T, 1});
  a.o = row_major<float, 4>(o.data(), {1, T, 1, kWidth});
  a.final_state = row_major<float, 4>(final_state.data(), {1, 1, kWidth, kWidth});
  const Contract contract = contract_named(kernel.contracts.front());
  for (auto _ : state) benchmark::DoNotOptimize(kernel.run(a, contract));
}
BENCHMARK(overhead)->Arg(1 << 12)->Arg(1 << 16)->Arg(1 << 20)->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace samestate

BENCHMARK_MAIN();

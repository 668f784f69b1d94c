// Measures what a call costs in addition to its kernel: a subject that does nothing, by the number of
// elements of a tensor. usage: SUBJECT=SPEC subject_benchmark; SPEC is written as for --subject, and names a
// single kernel of the gated delta rule.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <vector>

#include "harness/run/whole_call.h"
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
  const CallKernel& kernel = subject.rows.front();
  constexpr std::int64_t kWidth = 64;
  const std::int64_t T = state.range(0) / kWidth;
  const auto floats = [](std::int64_t size) {
    return std::vector<float>(static_cast<std::size_t>(size), 0.25F);
  };
  std::vector<float> q = floats(T * kWidth), k = q, v = q, o = q, g = floats(T), beta = g,
                     final_state = floats(kWidth * kWidth);
  KernelCall a;
  a.tokens = T;
  a.parameters = {{"Hk", 1}, {"Hv", 1}, {"dk", kWidth}, {"dv", kWidth}};
  const auto tensor = [](const char* name, std::vector<float>& data, std::vector<std::int64_t> shape) {
    return with_elements({.name = name}, row_major_tensor(data.data(), std::move(shape)));
  };
  const std::vector<std::int64_t> rows{1, T, 1, kWidth};
  a.inputs = {tensor("q", q, rows), tensor("k", k, rows), tensor("v", v, rows), tensor("g", g, {1, T, 1}),
              tensor("beta", beta, {1, T, 1})};
  a.outputs = {tensor("o", o, rows), tensor("final_state", final_state, {1, 1, kWidth, kWidth})};
  const Contract contract = contract_named(kernel.contracts.front());
  for (auto _ : state) benchmark::DoNotOptimize(kernel.run(a, contract));
}
BENCHMARK(overhead)->Arg(1 << 12)->Arg(1 << 16)->Arg(1 << 20)->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace samestate

BENCHMARK_MAIN();

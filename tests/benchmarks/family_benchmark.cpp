// Throughput of the oracles and of the CPU kernels at dk = dv = 128, in token-heads a second (items). One
// thread.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "optimized/kernel.h"
#include "oracles/systems/family.h"

namespace samestate {
namespace {

constexpr Index kTokens = 256;
constexpr Index kWidth = 128;

Sequence<double> draw() {
  std::mt19937_64 engine(1);
  std::normal_distribution<double> normal;
  const auto matrix = [&](Index rows, Index columns) {
    Matrix<double> m(rows, columns);
    for (Index i = 0; i < m.size(); ++i) m.data()[i] = normal(engine);
    return m;
  };
  Sequence<double> x;
  x.q = matrix(kTokens, kWidth);
  x.k = matrix(kTokens, kWidth).rowwise().normalized();
  x.v = matrix(kTokens, kWidth);
  x.g = Vector<double>::Constant(kTokens, -0.1);
  x.beta = Vector<double>::Constant(kTokens, 0.5);
  x.scale = 0.0883883461356163;
  x.initial_state = Matrix<double>::Zero(kWidth, kWidth);
  return x;
}

void oracle(benchmark::State& state, const Family& family) {
  const Sequence<double> x = draw();
  for (auto _ : state) benchmark::DoNotOptimize(family.recurrent(x).o.data());
  state.SetItemsProcessed(state.iterations() * kTokens);
}

void oracle_chunked(benchmark::State& state, const Family& family) {
  const Sequence<double> x = draw();
  for (auto _ : state) benchmark::DoNotOptimize(family.chunked(x, 64).o.data());
  state.SetItemsProcessed(state.iterations() * kTokens);
}

void kernel(benchmark::State& state, const Kernel& row) {
  const Sequence<double> x = draw();
  const auto floats = [](const auto& m) { return std::vector<float>(m.data(), m.data() + m.size()); };
  const std::vector<float> q = floats(x.q), k = floats(x.k), v = floats(x.v), g = floats(x.g),
                           beta = floats(x.beta);
  std::vector<float> o(v.size()), final_state(static_cast<std::size_t>(kWidth * kWidth));
  const Family& family = family_named(row.system);
  Arguments a;
  a.q = row_major<const float, 4>(q.data(), {1, kTokens, 1, kWidth});
  a.k = row_major<const float, 4>(k.data(), {1, kTokens, 1, kWidth});
  a.v = row_major<const float, 4>(v.data(), {1, kTokens, 1, kWidth});
  if (family.gated) a.g = row_major<const float, 3>(g.data(), {1, kTokens, 1});
  if (family.delta) a.beta = row_major<const float, 3>(beta.data(), {1, kTokens, 1});
  a.o = row_major<float, 4>(o.data(), {1, kTokens, 1, kWidth});
  a.final_state = row_major<float, 4>(final_state.data(), {1, 1, kWidth, kWidth});
  a.scale = static_cast<float>(x.scale);
  a.chunk = row.form != "recurrent" ? 64 : 0;
  const Contract fp32;
  for (auto _ : state) {
    if (row.run(a, fp32).kind != Outcome::Kind::ran) state.SkipWithError("the kernel did not run");
    benchmark::DoNotOptimize(o.data());
  }
  state.SetItemsProcessed(state.iterations() * kTokens);
}

}  // namespace
}  // namespace samestate

int main(int argc, char** argv) {
  using namespace samestate;
  for (const Family& family : families()) {
    const std::string name(family.name);
    benchmark::RegisterBenchmark(("oracle." + name + ".recurrent").c_str(), oracle, family);
    benchmark::RegisterBenchmark(("oracle." + name + ".chunked").c_str(), oracle_chunked, family);
  }
  for (const Kernel& row : kernels()) {
    if (row.device == "cpu") benchmark::RegisterBenchmark(row.name.c_str(), kernel, row);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

#include "tests/fuzz/mutants/state_space_faults.h"

namespace samestate {
namespace {

using namespace planted;

void exchanged(Damaged& d) { std::ranges::swap_ranges(d.input("B"), d.input("C")); }

/// D u joins after the gate.
Outcome skip_after_gate(const OperatorKernel& right, Damaged& d, const Contract& contract) {
  const std::vector<float> skip(d.input("skip").begin(), d.input("skip").end());
  d.fill("skip", 0.0F);
  const Outcome outcome = right.run(d.call, contract);
  const std::span<float> out = d.output("out");
  for (std::size_t i = 0; i < out.size(); ++i) out[i] += skip[i % skip.size()] * d.input("u")[i];
  return outcome;
}

/// The gate is sigma(z), not z sigma(z).
void gate_without_z(Damaged& d) {
  const std::span<float> out = d.output("out");
  for (std::size_t i = 0; i < out.size(); ++i) out[i] /= d.input("z")[i];
}

std::vector<OperatorFault> scan_faults(const char* kernel) {
  return {
      misread("hold for Euler, Euler for hold", kernel, other_discretisation),
      misread("no bias of the step", kernel, no_bias),
      misread("softplus twice", kernel, activated_twice),
      misread("A = -A_log", kernel, rate_without_exp),
      misread("the rates of the next channel", kernel, next_rate),
      misread("no skip", kernel, no_skip),
      {"the skip after the gate", kernel, skip_after_gate},
      miswritten("the gate without z", kernel, gate_without_z),
      misread("B and C exchanged", kernel, exchanged),
      misread("the state not read", kernel, [](Damaged& d) { d.fill("h", 0.0F); }),
      early_state(kernel),
  };
}

TEST(SelectiveScanFaults, DieInChunks) {
  std::vector<OperatorFault> faults = scan_faults("cpu.selective_scan.chunked");
  faults.push_back(chunks_forget("cpu.selective_scan.chunked", "h"));
  expect_killed(faults);
}

TEST(SelectiveScanFaults, DieInATree) { expect_killed(scan_faults("cpu.selective_scan.blelloch")); }

/// Head h reads group h mod G: the columns of a group for every head, and as many groups as heads.
Outcome groups_tiled(const OperatorKernel& right, Damaged& d, const Contract& contract) {
  const std::int64_t H = d.call.parameter("H");
  const std::int64_t G = d.call.parameter("G");
  const std::int64_t N = d.call.parameter("N");
  std::vector<float> wide[2];
  for (const int i : {0, 1}) {
    const std::string_view name = i == 0 ? "B" : "C";
    d.groups(name, G * N, [&](std::span<float> row) {
      for (std::int64_t h = 0; h < H; ++h) {
        const auto from = row.begin() + h % G * N;
        wide[i].insert(wide[i].end(), from, from + N);
      }
    });
    wide[i].push_back(0.0F);
    for (auto& tensor : d.call.inputs) {
      if (tensor.name != name) continue;
      tensor.data = wide[i].data();
      tensor.shape.back() = H * N;
    }
  }
  d.set("G", H);
  return right.run(d.call, contract);
}

/// States as [N, P] where [P, N] is promised.
void state_transposed(Damaged& d) {
  const std::int64_t P = d.call.parameter("P");
  const std::int64_t N = d.call.parameter("N");
  const std::span<float> S = d.output("S");
  for (auto head = S.begin(); head != S.end(); head += P * N) {
    const std::vector<float> old(head, head + P * N);
    for (std::int64_t i = 0; i < P * N; ++i) head[i] = old[static_cast<std::size_t>(i % P * N + i / P)];
  }
}

TEST(StateSpaceDualityFaults, Die) {
  const char* kernel = "cpu.state_space_duality.chunked";
  expect_killed({
      misread("no bias of the step", kernel, no_bias),
      misread("softplus twice", kernel, activated_twice),
      misread("A = -A_log", kernel, rate_without_exp),
      misread("the rate of the next head", kernel, next_rate),
      misread("no skip", kernel, no_skip),
      misread("B and C exchanged", kernel, exchanged),
      misread("the state not read", kernel, [](Damaged& d) { d.fill("S", 0.0F); }),
      {"groups tiled", kernel, groups_tiled},
      miswritten("the state transposed", kernel, state_transposed),
      early_state(kernel),
      chunks_forget(kernel, "S"),
  });
}

}  // namespace
}  // namespace samestate

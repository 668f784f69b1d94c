#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/mutants/operators/changed_call.h"
#include "harness/run/run_case.h"

/// One rounding that is not declared and one sum in 16 bit in each stage of a layer: what the whole layer shows of it, and
/// what its stages do.
namespace samestate {
namespace {

/// In which stages a fault is; several where the kernel has one function for them.
const std::map<std::string_view, std::vector<std::string_view>> kStages = {
    {"projected_terms_rounded", {"projections", "expansion of q", "expansion of k"}},
    {"projected_in_16_bit", {"projections", "expansion of q", "expansion of k"}},
    {"convolution_rounded", {"convolution", "convolution of q", "convolution of k", "convolution of v"}},
    {"convolution_in_16_bit", {"convolution", "convolution of q", "convolution of k", "convolution of v"}},
    {"length_rounded", {"norm of q", "norm of k"}},
    {"squares_in_16_bit", {"norm of q", "norm of k"}},
    {"strength_rounded", {"gates"}},
    {"bias_in_16_bit", {"gates"}},
    {"state_rounded", {"rule"}},
    {"decays_in_16_bit", {"rule"}},
    {"decay_rounded", {"windows and rule"}},
    {"state_in_16_bit", {"windows and rule"}},
    {"windows_rounded", {"mix"}},
    {"branches_in_16_bit", {"mix"}},
    {"normed_rounded", {"norm"}},
    {"mean_square_in_16_bit", {"norm"}},
    {"output_terms_rounded", {"output"}},
    {"output_in_16_bit", {"output"}}};

std::vector<Mutant> precision_mutants() {
  std::vector<Mutant> all = mutants::gated_delta_net_precision_mutants();
  for (Mutant& m : mutants::dendritic_precision_mutants()) all.push_back(std::move(m));
  return all;
}

struct Seen {
  int whole = 0, staged = 0, elsewhere = 0;
  std::map<std::string, int> stages;
};

/// A case of sums of several tiles; every second one of rates from slow to fast, since a state that is gone after a token shows nothing.
Judgement judged(const Mutant& mutant, const KernelTable& table, int seed, bool taps) {
  const bool delta_net = mutant.system == "gated_delta_net";
  return run_case(parse_case(fmt::format(
                      "v1 {} form={} T=24 contract=bf16 regime={} taps={} kernel={} seed={}{}", mutant.system,
                      mutant.form, seed % 2 == 0 ? "normal" : "wide_rates", taps ? 1 : 0, mutant.kernel(),
                      seed, delta_net ? " chunk=8" : " D=40 dv=20")),
                  table)
      .judgement;
}

/// In cases of that many seeds, with taps and, where it says so, without.
Seen seen_of(const Mutant& mutant, int seeds, bool whole) {
  const KernelTable table = mutant.table();
  const std::vector<std::string_view>& where = kStages.at(mutant.fault);
  Seen seen;
  for (int seed = 1; seed <= seeds; ++seed) {
    if (whole) seen.whole += judged(mutant, table, seed, false).verdict == Verdict::fail ? 1 : 0;
    const Judgement j = judged(mutant, table, seed, true);
    if (j.verdict != Verdict::fail) continue;
    ++seen.staged;
    ++seen.stages[j.stage];
    seen.elsewhere += std::ranges::find(where, j.stage) == where.end() ? 1 : 0;
    if (!whole) return seen;
  }
  return seen;
}

TEST(LayerPrecision, StagesSeeEachFaultWhereItIs) {
  for (const Mutant& mutant : precision_mutants()) {
    const Seen seen = seen_of(mutant, 6, false);
    EXPECT_GT(seen.staged, 0) << mutant.name;
    if (seen.elsewhere > 0) ADD_FAILURE() << mutant.name << " in " << seen.stages.begin()->first;
  }
}

TEST(LayerPrecision, RightKernelsPass) {
  const KernelTable table(kernels(), operator_kernels());
  for (const char* system : {"gated_delta_net form=chunked chunk=8", "dendritic_attention form=compacted"}) {
    for (const char* contract : {"bf16", "fp16", "fp32"}) {
      const Case c = parse_case(fmt::format("v1 {} T=40 B=2 contract={} taps=1 seed=5", system, contract));
      const Judgement j = run_case(c, table).judgement;
      EXPECT_EQ(j.verdict, Verdict::pass) << system << " " << contract << ": " << j.reason;
      EXPECT_GE(j.stages.size(), 8U) << system;
    }
  }
}

// The numbers of docs/understand/validation.md.
TEST(LayerPrecision, LongWholeAndStages) {
  constexpr int kSeeds = 12;
  int whole = 0, staged = 0, faults = 0;
  for (const Mutant& mutant : precision_mutants()) {
    const Seen seen = seen_of(mutant, kSeeds, true);
    std::string stages;
    for (const auto& [stage, count] : seen.stages)
      stages += fmt::format("{}{} {}", stages.empty() ? "" : ", ", stage, count);
    fmt::print("| {} | {} | {} | {} | {} |\n", mutant.system, mutant.fault, seen.whole, seen.staged, stages);
    whole += seen.whole;
    staged += seen.staged;
    ++faults;
    EXPECT_GT(seen.staged, 0) << mutant.name;
  }
  fmt::print("of {} cases each: whole {:.3f}, stages {:.3f}\n", kSeeds,
             static_cast<double>(whole) / (faults * kSeeds), static_cast<double>(staged) / (faults * kSeeds));
  EXPECT_GT(staged, whole);
}

}  // namespace
}  // namespace samestate

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/run/kernel_table.h"
#include "harness/run/run_case.h"
#include "oracles/reasons.h"
#include "oracles/systems/stages.h"
#include "tests/harness/other_call.h"

/// The taps of the CUDA rows, executed by the emulation: which stages they let the gate judge, and that a tap that is not what the
/// next stage read is seen, as is a fault of a stage that the whole layer hides.
namespace samestate {
namespace {

const std::vector<OperatorKernel>& all_rows() {
  static const std::vector<OperatorKernel> kRows = [] {
    void* const library = dlopen(SAMESTATE_EMULATED_OPERATORS, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw Error(dlerror());
    std::vector<OperatorKernel> rows;
    reinterpret_cast<void (*)(std::vector<OperatorKernel>*)>(dlsym(library, kTensorRows.data()))(&rows);
    return rows;
  }();
  return kRows;
}

/// The rows whose kernels hand out taps.
const std::vector<OperatorKernel>& rows() {
  static const std::vector<OperatorKernel> kRows = [] {
    std::vector<OperatorKernel> all = all_rows();
    std::erase_if(all, [](const OperatorKernel& row) { return row.taps.empty(); });
    return all;
  }();
  return kRows;
}

const OperatorKernel& row_named(std::string_view name) {
  const auto row = std::ranges::find(all_rows(), name, &OperatorKernel::name);
  if (row == all_rows().end()) throw Error("no row " + std::string(name));
  return *row;
}

/// `rest` may name the form of the case; else it is the row's.
Resolved case_of(const OperatorKernel& row, std::string_view rest) {
  const bool chunked = find_operator(row.system)->form(row.form)->chunked;
  const std::string form = rest.starts_with("form=") ? "" : fmt::format("form={} ", row.form);
  return Resolved(parse_case(fmt::format("v1 {} {}{}{}", row.system, form, chunked ? "chunk=8 " : "", rest)));
}

using Change = std::function<void(OtherCall&)>;

/// Judges the row with inputs changed by `before` and outputs changed by `after`.
Judgement judged(OperatorKernel row, std::string_view rest, const Change& before = nullptr,
                 const Change& after = nullptr) {
  const Resolved r = case_of(row, rest);
  row.run = [right = row.run, before, after](const OperatorArguments& call, const Contract& contract) {
    OtherCall other(call);
    if (before) before(other);
    const Outcome outcome = right(other.call, contract);
    if (after) after(other);
    return outcome;
  };
  const KernelRow kernel = adapted(row);
  return r.system->run(r, {&kernel, &kernel, &kernel}, {r.layout, 1}, kGatePolicy, nullptr);
}

std::string stages_in(const Judgement& j) {
  std::string names;
  for (const StageFinding& s : j.stages) names += "/" + s.stage;
  return names;
}

constexpr const char* kContracts[] = {"fp32", "bf16"};

bool promises(const OperatorKernel& row, std::string_view contract) {
  return std::ranges::find(row.contracts, contract) != row.contracts.end();
}

TEST(EmulatedTaps, OfEveryLayerAllIsJudged) {
  // Together they write every output of the layer, from its inputs.
  const std::map<std::string, std::string> stages = {
      {"gated_delta_net.recurrent", "/projections/convolution/norms, gates and rule/norm/output"},
      {"dendritic_attention.chunked",
       "/projections/expansion of q/expansion of k/convolution of v/branches to rule/mix/norm/output"},
      {"dendritic_attention.compacted",
       "/projections/expansion of q/expansion of k/convolution of v/branches to rule/mix/norm/output"},
      {"gated_attention.online",
       "/query and gate/keys/values/norm and rotation of q/norm and rotation of k/attention and gate/output"},
      {"latent_cache.direct", "/projection/norm/rotation"},
      {"latent_attention.naive", "/compression/norm/queries/rotation/attention/output"},
      {"latent_attention.absorbed", "/compression/norm/queries/rotation/absorption/attention/values/output"},
      {"mixture_of_experts.sorted", "/selection/weights/hidden rows/experts/sum"},
      {"qwen3_next_moe.sorted",
       "/router/selection/weights/hidden rows/experts/shared hidden rows/shared expert/shared gate and sum"},
      {"mamba_mixer.recurrent", "/input/convolution/selection/time steps/scan/output"},
      {"mamba2_mixer.chunked", "/input/convolution/state space/gate and norm/output"},
      {"multi_scale_retention.recurrent", "/queries and keys/values/gate/retention/norm and gate/output"}};
  EXPECT_EQ(rows().size(), stages.size());
  for (const OperatorKernel& row : rows()) {
    const auto expected = stages.find(row.name.substr(row.name.find('.') + 1));
    ASSERT_NE(expected, stages.end()) << row.name;
    for (const char* contract : kContracts) {
      if (!promises(row, contract)) continue;
      const Judgement j = judged(row, fmt::format("T=19 B=2 contract={} taps=1 seed=3", contract));
      EXPECT_EQ(j.verdict, Verdict::pass) << row.name << " " << contract << ": " << j.reason;
      EXPECT_EQ(stages_in(j), expected->second) << row.name << " " << contract;
    }
  }
}

// For a decoded token, the Gated DeltaNet layer has other launches, and the results of its convolutions are
// not a tensor.
TEST(EmulatedTaps, OfADecodedTokenAreThoseThatThereAre) {
  const OperatorKernel& row = row_named("emulated.gated_delta_net.recurrent");
  for (const char* contract : kContracts) {
    // A head in one block, and in more: then the norm is a launch of its own, in front of which the pads are cleared.
    for (const char* of :
         {"T=1 B=5 regime=masked", "T=1 B=3 dk=8 dv=250 regime=masked", "form=decode prefill=5 T=9 B=2"}) {
      const Judgement j = judged(row, fmt::format("{} contract={} taps=1 seed=3", of, contract));
      EXPECT_EQ(j.verdict, Verdict::pass) << of << " " << contract << ": " << j.reason;
      EXPECT_EQ(stages_in(j), "/projections/convolution to rule/norm/output") << of << " " << contract;
    }
  }
}

// Pads are zero where they are read, and not where the projections have written them.
TEST(EmulatedTaps, OfPadsAreWhatWasRead) {
  for (const char* name : {"emulated.gated_delta_net.recurrent", "emulated.dendritic_attention.compacted"}) {
    for (const char* of : {"T=19 B=2", "form=decode prefill=1 T=9 B=3"}) {
      const Judgement j = judged(row_named(name), fmt::format("{} regime=masked contract=bf16 taps=1", of));
      EXPECT_EQ(j.verdict, Verdict::pass) << name << " " << of << ": " << j.reason;
    }
  }
}

/// A tap that is not what was read; `whole` is all of a sequence after the other, `width` the elements of a token.
struct TapFault {
  const char* name;
  void (*make)(std::span<float> whole, std::int64_t width);
};

void one_row_off(std::span<float> whole, std::int64_t width) {
  std::rotate(whole.begin(), whole.end() - width, whole.end());
}
void one_column_off(std::span<float> whole, std::int64_t width) {
  for (std::size_t t = 0; t < whole.size(); t += static_cast<std::size_t>(width))
    std::rotate(whole.begin() + static_cast<std::ptrdiff_t>(t),
                whole.begin() + static_cast<std::ptrdiff_t>(t) + width - 1,
                whole.begin() + static_cast<std::ptrdiff_t>(t) + width);
}
void last_not_written(std::span<float> whole, std::int64_t) { whole.back() = std::nanf(""); }
/// The data that another launch keeps in a buffer of that size.
void another_buffer(std::span<float> whole, std::int64_t) {
  for (float& x : whole) x *= -1.0F;
}
/// As a sum in fp32 is, before it is stored: off by less than a rounding, to either side.
void before_its_rounding(std::span<float> whole, std::int64_t) {
  float off = 0x1p-11F;
  for (float& x : whole) x *= 1.0F + (off = -off);
}

constexpr TapFault kTapFaults[] = {{"one row off", one_row_off},
                                   {"one column off", one_column_off},
                                   {"the last element not written", last_not_written},
                                   {"another buffer", another_buffer},
                                   {"before its rounding", before_its_rounding}};

bool of_stage(const Stage& stage, const std::string& tap) {
  const auto is_it = [&](const StageTensor& x) { return x.of == tap; };
  return std::ranges::any_of(stage.reads, is_it) || std::ranges::any_of(stage.writes, is_it);
}

TEST(EmulatedTaps, WhatIsNotWhatWasReadFailsInAStageThatHasIt) {
  for (const OperatorKernel& row : rows()) {
    const std::string rest = "T=19 B=2 contract=bf16 taps=1 seed=3";
    const Resolved r = case_of(row, rest);
    const LayerStages known = stages_of(row.system)(
        Call{row.form, r.c.T, r.c.chunk, {r.c.parameters.begin(), r.c.parameters.end()}});
    for (const std::string& declared : row.taps) {
      const std::string tap = declared.substr(0, declared.find(' '));
      for (const TapFault& fault : kTapFaults) {
        // Numbers of experts are those of the format.
        if (tap == "experts" && fault.make == before_its_rounding) continue;
        const Judgement j = judged(row, rest, nullptr, [&](OtherCall& c) {
          const std::span<float> whole = c.written(tap);
          ASSERT_FALSE(whole.empty()) << row.name << " " << tap;
          fault.make(whole, std::ssize(whole) / (r.c.B * r.c.T));
        });
        EXPECT_EQ(j.verdict, Verdict::fail) << row.name << " " << tap << " " << fault.name;
        EXPECT_TRUE(std::ranges::any_of(
            known.stages, [&](const Stage& stage) { return stage.name == j.stage && of_stage(stage, tap); }))
            << row.name << " " << tap << " " << fault.name << ": stage " << j.stage << ": " << j.reason;
      }
    }
  }
}

/// A fault of a stage that is too small for the bound of the whole layer: near what an epsilon of 1e-5 in place of 1e-6 makes of
/// a norm.
struct Hidden {
  const char* row;
  const char* stage;
  const char* input;  ///< whose numbers the kernel reads otherwise
  float size = 0x1p-18F;
};

constexpr Hidden kHidden[] = {{"gated_delta_net.recurrent", "norm", "norm"},
                              {"dendritic_attention.compacted", "norm", "o_norm"},
                              {"gated_attention.online", "norm and rotation of q", "q_norm"},
                              {"latent_cache.direct", "norm", "kv_norm", 0x1p-20F},
                              {"latent_attention.naive", "norm", "q_norm"},
                              {"latent_attention.absorbed", "norm", "q_norm"},
                              {"mixture_of_experts.sorted", "hidden rows", "up", 0x1p-17F},
                              {"qwen3_next_moe.sorted", "shared expert", "shared_down"},
                              {"mamba_mixer.recurrent", "scan", "skip"},
                              {"mamba2_mixer.chunked", "gate and norm", "norm"},
                              {"multi_scale_retention.recurrent", "gate", "g_proj"}};

TEST(EmulatedTaps, AFaultThatTheWholeHidesShowsInItsStage) {
  const std::string rest = "T=19 B=2 contract=fp32 taps=1 seed=3";
  EXPECT_EQ(std::ssize(kHidden),
            std::ranges::count_if(rows(), [](const OperatorKernel& row) { return promises(row, "fp32"); }));
  for (const Hidden& hidden : kHidden) {
    OperatorKernel row = row_named(std::string("emulated.") + hidden.row);
    const Change before = [&](OtherCall& c) { c.scale(hidden.input, 1.0F + hidden.size); };
    const Judgement staged = judged(row, rest, before);
    EXPECT_EQ(staged.verdict, Verdict::fail) << hidden.row;
    EXPECT_EQ(staged.stage, hidden.stage) << hidden.row << ": " << staged.reason;
    row.taps.clear();
    const Judgement whole = judged(row, rest, before);
    EXPECT_NE(whole.verdict, Verdict::fail) << hidden.row << ": " << whole.reason;
  }
}

// A tie of the last sequence is turned early, so that 24 other twins are nearer to it than the kernel's, which all other
// sequences have.
TEST(EmulatedTwins, AKernelHasTheTwinOfItsOtherSequences) {
  const OperatorKernel& row = row_named("emulated.gated_delta_net.recurrent");
  const std::string_view rest =
      "B=35 T=2 D=81 Hk=1 R=1 dk=4 dv=8 W=2 contract=bf16 regime=repeated seed=0x3744115bad0d076b";
  const Judgement right = judged(row, rest);
  EXPECT_EQ(right.verdict, Verdict::pass) << right.reason;
  // The first sequence with a twin of its own is judged again after the others, and is not excused by theirs.
  for (const Index sequence : {0, 34}) {
    const Judgement wrong = judged(row, rest, nullptr, [&](OtherCall& call) {
      for (const NamedTensor<float>& out : call.call.outputs) {
        if (out.name == "y") out.data[2 * 81 * sequence + 3] *= 1.02F;
      }
    });
    EXPECT_EQ(wrong.verdict, Verdict::fail) << sequence;
    EXPECT_EQ(wrong.worst.sequence, sequence);
  }
}

// A pool in fp32 shows how sums of fp32 cancel; drawn twins of it that were written in bf16 showed nothing of that.
TEST(EmulatedTwins, DrawnTwinsAreWrittenAsTheKernelWrites) {
  const OperatorKernel& row = row_named("emulated.gated_delta_step.recurrent");
  const Judgement right =
      judged(row,
             "B=2 T=2 P=2 Hk=33 Hv=165 dk=1 dv=2 contract=bf16 regime=extremes layout=sliced repeat=1 "
             "seed=0x180000c78");
  EXPECT_EQ(right.verdict, Verdict::pass) << right.reason;
}

}  // namespace
}  // namespace samestate

/// The twin gate on final states: roundings on the way to the state that no row of o shows.
#include "harness/run/judge_batch.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>

#include "fuzz/mutants/family/rows.h"
#include "harness/run/run_case.h"

namespace samestate {
namespace {

using mutants::Chunked;
using mutants::Grid;
using mutants::Recurrent;
using mutants::rounded;

struct Right : Chunked {
  using Chunked::Chunked;
};

/// e^{G_C - G} V' goes into the update as it is.
struct NotRounded : Chunked {
  using Chunked::Chunked;
  void update() override {
    S_ *= carried_;
    S_ += multiply(rounded(K_, contract_.qk).transpose(), to_end_.asDiagonal() * V_new_);
  }
};

/// Rounded as V' already, and again.
struct RoundedTwice : Chunked {
  using Chunked::Chunked;
  void update() override {
    const Grid decayed = to_end_.asDiagonal() * rounded(V_new_, contract_.v_new);
    S_ *= carried_;
    S_ += multiply(rounded(K_, contract_.qk).transpose(), rounded(decayed, contract_.v_decayed));
  }
};

/// The lower half of the word is dropped.
struct Truncated : Chunked {
  using Chunked::Chunked;
  void update() override {
    const Grid decayed = (to_end_.asDiagonal() * V_new_).unaryExpr([](float x) {
      return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xffff0000U);
    });
    S_ *= carried_;
    S_ += multiply(rounded(K_, contract_.qk).transpose(), decayed);
  }
};

template <class Fault>
Judgement judged(const std::string& keys) {
  const std::vector<Kernel> rows{
      mutants::kernel_of<Fault>(cpu::GATED_DELTA_RULE, "planted", {"fp32", "bf16"}),
      mutants::kernel_of<Recurrent>(cpu::GATED_DELTA_RULE, "planted", {"fp32", "bf16"})};
  return run_case(
             parse_case("v1 gated_delta_rule kernel=planted.gated_delta_rule.chunked contract=bf16 " + keys),
             KernelTable(rows))
      .judgement;
}

// A state holds what its gates let live: where they decay at once it has too few directions to be compared.
constexpr const char* kLines[] = {"chunk=64 T=256 dk=64 dv=64 regime=slow state=random seed=0x5",
                                  "chunk=16 T=128 dk=64 dv=32 Hv=2 regime=slow seed=0x7"};
/// No row of o ever shows what only the end of the one chunk rounds.
constexpr const char* kOneChunk = "chunk=64 T=64 dk=64 dv=64 regime=slow seed=0x6";

void expect_killed(const Judgement& j) {
  EXPECT_EQ(j.verdict, Verdict::fail);
  EXPECT_TRUE(j.gate.starts_with("twin")) << j.reason;
  EXPECT_NE(j.reason.find("the final state"), std::string::npos) << j.reason;
}

TEST(TwinOfTheState, KillsWrongRoundingsOfTheUpdate) {
  for (const char* line : kLines) {
    SCOPED_TRACE(line);
    expect_killed(judged<NotRounded>(line));
    expect_killed(judged<RoundedTwice>(line));
    expect_killed(judged<Truncated>(line));
  }
  expect_killed(judged<NotRounded>(kOneChunk));
  expect_killed(judged<Truncated>(kOneChunk));
}

TEST(TwinOfTheState, PassesTheKernelThatRoundsAsDeclared) {
  for (const char* line : kLines) {
    const Judgement j = judged<Right>(line);
    EXPECT_EQ(j.verdict, Verdict::pass) << line << ": " << j.reason;
    EXPECT_GT(j.twin_ratio, 0.0) << line;
  }
  EXPECT_EQ(judged<Right>(kOneChunk).verdict, Verdict::pass);
}

}  // namespace
}  // namespace samestate

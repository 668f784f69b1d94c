#include "harness/records/case_result.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "reference/error.h"

namespace samestate {
namespace {

CaseResult full() {
  CaseResult f;
  Judgement& j = f.judgement;
  j.verdict = Verdict::fail;
  j.gate = "segment row";
  j.ratio = std::numeric_limits<double>::infinity();
  j.error = 0.1;
  j.bound = std::numeric_limits<double>::denorm_min();
  j.expected = -1.0 / 3.0;
  j.actual = std::numeric_limits<double>::quiet_NaN();
  j.row_ratio = 1.5, j.head_ratio = 2.5, j.state_ratio = 3.5, j.hard_ratio = 4.5, j.twin_ratio = 5.5;
  j.median_ratio = 6.5, j.relative_rms = -0.0, j.sampled_ratio = 7.5;
  j.worst = {1, -1, 65, 7};
  j.rows = 33;
  j.held = 26, j.held_of = 65600, j.held_which = "0:0,3 1:1";
  j.stage = "norm of q";
  j.stages = {{"projections", Verdict::pass, 0.1, "element"},
              {"norm of q", Verdict::fail, std::numeric_limits<double>::infinity(), "twin share"},
              {"rule", Verdict::vacuous, 0.0, ""}};
  j.reason = "a tab\tand a \\ and\na line";
  f.seconds = 0.25;
  f.edges = 0xf000000000000001U;
  f.gpu = "GPU-8f6d";
  f.outputs = "o:0123456789abcdef final_state:1";
  f.tuned = "first: scan: BLOCK=64\tnum_warps=4";
  f.policy = "gate";
  return f;
}

TEST(CaseResult, ComesBackBitForBit) {
  const CaseResult in = full();
  const std::string text = result_text(in);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const CaseResult out = parse_result(text);
  EXPECT_EQ(result_text(out), text);
  EXPECT_EQ(out.judgement.verdict, Verdict::fail);
  EXPECT_EQ(out.judgement.gate, in.judgement.gate);
  EXPECT_EQ(out.judgement.reason, in.judgement.reason);
  EXPECT_EQ(out.judgement.bound, in.judgement.bound);
  EXPECT_EQ(out.judgement.expected, in.judgement.expected);
  EXPECT_TRUE(std::isnan(out.judgement.actual));
  EXPECT_TRUE(std::isinf(out.judgement.ratio));
  EXPECT_TRUE(std::signbit(out.judgement.relative_rms));
  EXPECT_EQ(out.judgement.worst.head, -1);
  EXPECT_EQ(out.judgement.worst.token, 65);
  EXPECT_EQ(out.judgement.held, 26);
  EXPECT_EQ(out.judgement.held_of, 65600);
  EXPECT_EQ(out.judgement.held_which, in.judgement.held_which);
  EXPECT_EQ(out.judgement.stage, "norm of q");
  ASSERT_EQ(out.judgement.stages.size(), 3U);
  EXPECT_EQ(out.judgement.stages[1].gate, "twin share");
  EXPECT_EQ(out.judgement.stages[1].verdict, Verdict::fail);
  EXPECT_EQ(out.judgement.stages[0].ratio, 0.1);
  EXPECT_EQ(out.edges, in.edges);
  EXPECT_EQ(out.gpu, in.gpu);
  EXPECT_EQ(out.outputs, in.outputs);
  EXPECT_EQ(out.tuned, in.tuned);
  EXPECT_EQ(out.policy, in.policy);
}

// Checkpoints of before have neither.
TEST(CaseResult, OneWithoutADeviceIsRead) {
  const std::string text = result_text(full());
  const std::string before = text.substr(0, text.find("\tGPU-8f6d"));
  const CaseResult out = parse_result(before);
  EXPECT_EQ(out.judgement.reason, full().judgement.reason);
  EXPECT_EQ(out.gpu, "");
  EXPECT_EQ(out.outputs, "");
  EXPECT_THROW((void)parse_result(before + "\tGPU-8f6d"), Error);
  const std::string without_policy = text.substr(0, text.rfind('\t'));
  EXPECT_EQ(parse_result(without_policy).policy, "");
  EXPECT_EQ(parse_result(without_policy).tuned, full().tuned);
  EXPECT_EQ(parse_result(without_policy.substr(0, without_policy.rfind('\t'))).tuned, "");
  EXPECT_THROW((void)parse_result(text + "\t"), Error);
}

TEST(CaseResult, DamagedLinesAreErrors) {
  const std::string text = result_text(full());
  EXPECT_THROW((void)parse_result(""), Error);
  EXPECT_THROW((void)parse_result(text.substr(0, text.size() / 2)), Error);
  EXPECT_THROW((void)parse_result("passed" + text.substr(4)), Error);
  for (const auto& [from, to] : {std::pair{"projections|", "projections"},
                                 {"|pass|", "|past|"},
                                 {"projections|pass", "|pass"},
                                 {"|element;", "|element|x;"}}) {
    std::string damaged = text;
    const std::size_t at = damaged.find(from);
    ASSERT_NE(at, damaged.npos) << from;
    EXPECT_THROW((void)parse_result(damaged.replace(at, std::string(from).size(), to)), Error) << to;
  }
  EXPECT_THROW((void)parse_result(text + "\tmore"), Error);
}

}  // namespace
}  // namespace samestate

#include "harness/captured/judge_captured.h"

#include <limits>

#include "tests/facts.h"
#include "tests/harness/captured/captured_folder.h"

namespace samestate {
namespace {

CapturedJudgement judge(const CapturedFolderOfCase& made, double budget = 2.0) {
  const CapturedFolder folder = made.write();
  return judge_captured(made.folder, folder.calls.at(0), folder.functions.at("m:f"), {}, budget);
}

TEST(JudgeCaptured, RightCallsPassWithinWhatTheirDataAllow) {
  for (const auto& [line, dtype] :
       {std::pair{"v1 gated_delta_rule chunk=16 T=70 B=2 Hk=2 Hv=4 dk=16 dv=8 state=random", DType::f32},
        {"v1 gated_delta_rule chunk=16 T=70 Hv=2 dk=32 contract=bf16", DType::bf16},
        {"v1 gated_delta_rule form=recurrent T=1 B=5 Hv=3 dk=16 state=random", DType::f32},
        {"v1 retention chunk=16 T=70 dk=16 contract=bf16_io", DType::bf16},
        {"v1 delta_rule chunk=16 T=70 dk=16", DType::f32}}) {
    const CapturedJudgement found = judge(CapturedFolderOfCase(line, dtype));
    EXPECT_EQ(found.judgement.verdict, Verdict::pass) << line << ": " << found.judgement.reason;
    EXPECT_EQ(found.judgement.held, 0) << line;  // all of them
    EXPECT_GT(found.numbers.at("max_abs"), 0.0) << line;
    EXPECT_LT(found.numbers.at("max_abs"), found.numbers.at("allowed_max_abs")) << line;
    EXPECT_LT(found.numbers.at("relative_rms"), found.numbers.at("allowed_relative_rms")) << line;
    EXPECT_LT(found.numbers.at("state_relative_rms"), found.numbers.at("state_allowed_relative_rms")) << line;
  }
}

// A file of a later version, or one that something else wrote, is not read as if it were a call of this one.
TEST(JudgeCaptured, AFileOfAnotherFormatIsRefused) {
  const CapturedFolderOfCase made("v1 retention chunk=16 T=33 dk=8");
  const auto complaint = [&](const Metadata& format) -> std::string {
    const CapturedFolder folder = made.write(format);
    try {
      (void)captured_case(made.folder, folder.calls.at(0), folder.functions.at("m:f"), {});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(complaint({{"format", "samestate-call-1"}}), "");
  for (const auto& [format, named] :
       {std::pair<Metadata, std::string>{{{"format", "samestate-call-9"}}, "'samestate-call-9'"},
        {{{"format", "pt\n"}}, "'pt\\x0a'"},
        {{}, "missing"}}) {
    const std::string text = complaint(format);
    EXPECT_EQ(lacking(text, "call-1-00001.safetensors format samestate-call-1 " + named), "") << text;
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
}

TEST(JudgeCaptured, AWrongElementIsNamed) {
  CapturedFolderOfCase made("v1 gated_delta_rule chunk=16 T=70 B=2 Hk=2 Hv=4 dk=16 dv=8 state=random");
  made.at("output.0", 1, 37, 2, 5) += 0.01;
  const CapturedJudgement found = judge(made);
  EXPECT_EQ(found.judgement.verdict, Verdict::fail);
  EXPECT_EQ(found.judgement.worst.sequence, 1);
  EXPECT_EQ(found.judgement.worst.head, 2);
  EXPECT_EQ(found.judgement.worst.token, 37);
  EXPECT_EQ(found.judgement.worst.channel, 5);
  EXPECT_NEAR(found.numbers.at("max_abs"), 0.01, 1e-4);
  EXPECT_EQ(found.numbers.at("at_token"), 37);
  EXPECT_EQ(found.numbers.at("at_column"), 5);
}

TEST(JudgeCaptured, AnInputThatTheCallChangedFails) {
  CapturedFolderOfCase made("v1 gated_delta_rule chunk=16 T=70 dk=16 state=random");
  made.put("after.q", DType::f32, {1, 70, 1, 16}, made.batch.q);
  const CapturedJudgement found = judge(made);
  EXPECT_EQ(found.judgement.verdict, Verdict::fail);
  EXPECT_EQ(found.judgement.gate, "memory");
  EXPECT_NE(found.judgement.reason.find("input q"), std::string::npos);
}

/// A result that is missing or cut fails, whatever the others are; a state that was not requested is ignored.
TEST(JudgeCaptured, ResultsThatAreMissingOrCutFail) {
  const std::string line = "v1 gated_delta_rule chunk=16 T=70 Hv=2 dk=16 dv=8 state=random";
  const std::string asked = R"("output_final_state":true)", not_asked = R"("output_final_state":false)";
  CapturedFolderOfCase whole(line);
  whole.values = asked;
  EXPECT_EQ(judge(whole).judgement.verdict, Verdict::pass);
  const auto fault = [&](auto&& change) {
    CapturedFolderOfCase made(line);
    made.values = asked;
    change(made);
    const CapturedJudgement found = judge(made);
    EXPECT_EQ(found.judgement.verdict, Verdict::fail);
    EXPECT_EQ(found.judgement.gate, "outputs");
    return found.judgement.reason;
  };
  EXPECT_EQ(fault([](auto& made) { made.tensors.erase("output.1"); }),
            "output_final_state is True, but the call returned no final state");
  EXPECT_EQ(fault([](auto& made) {
              Tensor& o = made.tensors.at("output.0");
              o.shape[1] = 64, o.values.resize(std::size_t{64} * 2 * 8);
            }),
            "o is [1, 64, 2, 8] instead of [1, 70, 2, 8]");
  EXPECT_EQ(fault([](auto& made) {
              Tensor& state = made.tensors.at("output.1");
              state.shape[3] = 4, state.values.resize(std::size_t{2} * 16 * 4);
            }),
            "final_state is [1, 2, 16, 4] instead of [1, 2, 16, 8]");
  EXPECT_EQ(fault([](auto& made) {
              made.tensors.erase("output.0"), made.tensors.erase("output.1"), made.none = "\"0\"";
            }),
            "the call returned None instead of o");
  CapturedFolderOfCase unread(line);
  unread.values = not_asked;
  for (double& value : unread.tensors.at("output.1").values) value = 0.0;
  EXPECT_EQ(judge(unread).judgement.verdict, Verdict::pass);
  unread.values = asked;
  EXPECT_EQ(judge(unread).judgement.verdict, Verdict::fail);
}

/// The place of a NaN is said, and the errors of the other values are theirs alone.
TEST(JudgeCaptured, ANanIsNamed) {
  CapturedFolderOfCase made("v1 gated_delta_rule chunk=16 T=70 B=2 Hk=2 Hv=4 dk=16 dv=8 state=random");
  made.at("output.0", 1, 37, 2, 5) = std::numeric_limits<double>::quiet_NaN();
  const CapturedJudgement found = judge(made);
  EXPECT_EQ(found.judgement.verdict, Verdict::fail);
  EXPECT_EQ(found.numbers.at("not_finite"), 1);
  EXPECT_EQ(found.numbers.at("not_finite_sequence"), 1);
  EXPECT_EQ(found.numbers.at("not_finite_head"), 2);
  EXPECT_EQ(found.numbers.at("not_finite_token"), 37);
  EXPECT_EQ(found.numbers.at("not_finite_column"), 5);
  EXPECT_LT(found.numbers.at("relative_rms"), found.numbers.at("allowed_relative_rms"));
  EXPECT_TRUE(std::isnan(found.judgement.relative_rms));
}

constexpr const char* kManyHeads = "v1 gated_delta_rule chunk=64 T=256 B=8 Hk=2 Hv=8 dk=32 dv=32";

/// If the budget does not suffice for all heads, the record names those that were held, and the farthest are among them.
TEST(JudgeCaptured, OfManyHeadsTheFarthestIsHeld) {
  CapturedFolderOfCase made(kManyHeads);
  CapturedJudgement found = judge(made, 0.02);
  EXPECT_EQ(found.judgement.verdict, Verdict::pass) << found.judgement.reason;
  EXPECT_LT(found.judgement.held, 64);
  EXPECT_EQ(found.judgement.held_of, 64);
  made.at("output.0", 5, 200, 3, 7) += 0.05;
  found = judge(made, 0.2);
  EXPECT_LT(found.judgement.held, 64);
  EXPECT_EQ(found.judgement.verdict, Verdict::fail);
  EXPECT_EQ(found.judgement.worst.sequence, 5);
  EXPECT_EQ(found.judgement.worst.head, 3);
  EXPECT_EQ(found.judgement.worst.token, 200);
}

/// A sequence that is too long for the budget is judged on two heads, in stretches, which the record names.
TEST(JudgeCaptured, LongSequencesAreJudgedInStretches) {
  CapturedFolderOfCase made("v1 gated_delta_rule chunk=64 T=12000 Hk=1 Hv=3 dk=32 dv=32 contract=bf16",
                            DType::bf16);
  CapturedJudgement found = judge(made, 0.1);
  EXPECT_EQ(found.judgement.verdict, Verdict::pass) << found.judgement.reason;
  EXPECT_EQ(found.judgement.held_of, 3);
  const std::string& which = found.judgement.held_which;
  EXPECT_NE(which.find("0:0 tokens 0-255,"), std::string::npos) << which;
  EXPECT_NE(which.find("-11999"), std::string::npos) << which;
  EXPECT_NE(which.find("float64 went over all tokens"), std::string::npos) << which;
  EXPECT_LT(found.judgement.rows, 2 * 12000);
  for (std::int64_t d = 0; d < 32; ++d) made.at("output.0", 0, 7333, 0, d) *= 1.25;
  found = judge(made, 0.1);
  EXPECT_EQ(found.judgement.verdict, Verdict::fail);
  EXPECT_EQ(found.judgement.worst.head, 0);
  EXPECT_EQ(found.judgement.worst.token, 7333);
  EXPECT_NE(found.judgement.held_which.find("7168-7423"), std::string::npos) << found.judgement.held_which;
}

}  // namespace
}  // namespace samestate

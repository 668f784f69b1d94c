#include "harness/captured/captured_spans.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "harness/cases/regimes.h"
#include "harness/cases/resolved.h"
#include "harness/cases/system.h"
#include "harness/run/family_run.h"
#include "harness/run/judge_batch.h"
#include "oracles/contracts.h"

namespace samestate {
namespace {

/// A long head of a drawn case, and what the CPU kernel makes of it.
struct Long {
  Resolved r;
  const Family& family;
  Batch batch;
  Sequence<double> x;
  Matrix<double> o, state;

  explicit Long(const std::string& line)
      : r(parse_case(line)),
        family(family_named(r.c.system)),
        batch(batch_of(r, family)),
        x(sequence_of(batch, 0, 0)) {
    const Outputs outputs = run_on_cpu(r.c.system, batch, r.path(r.c.T), r.promised);
    o = rows_of(batch, outputs, 0, 0);
    state = state_of(batch, outputs, 0, 0);
  }

  [[nodiscard]] SpanJudgement judge(Index tokens = 2048) const {
    return judge_in_spans(x, r.chunk, r.promised, family, r.c.l2norm, o, state, tokens);
  }
  [[nodiscard]] Index worst_token(const SpanJudgement& found) const {
    for (const HeldSpan& span : found.spans) {
      if (span.judgement.verdict == Verdict::fail) return span.judgement.worst.token;
    }
    return -1;
  }
};

bool holds(const SpanJudgement& found, Index token) {
  return std::ranges::any_of(found.spans, [&](const HeldSpan& span) {
    return span.tokens.begin <= token && token < span.tokens.end;
  });
}

const char* const kLines[] = {"v1 gated_delta_rule T=8192 dk=16 dv=16 chunk=64 state=random",
                              "v1 gated_delta_rule T=8192 dk=16 dv=16 chunk=64 contract=bf16 state=random",
                              "v1 gated_delta_rule form=recurrent T=6000 dk=16 dv=16 state=random",
                              "v1 delta_rule T=8192 dk=16 dv=16 chunk=48",
                              "v1 retention T=8192 dk=16 dv=16 contract=bf16"};

TEST(CapturedSpans, RightKernelsPassInPart) {
  for (const char* line : kLines) {
    const Long one(line);
    const SpanJudgement found = one.judge();
    ASSERT_GE(found.spans.size(), 3U) << line;
    EXPECT_EQ(found.spans.front().tokens.begin, 0) << line;
    EXPECT_EQ(found.spans.back().tokens.end, one.r.c.T) << line;
    Index held = 0;
    for (const HeldSpan& span : found.spans) {
      EXPECT_EQ(span.judgement.verdict, Verdict::pass)
          << line << " at " << span.tokens.begin << ": " << span.judgement.reason;
      held += span.tokens.end - span.tokens.begin;
    }
    EXPECT_LT(held, one.r.c.T / 2) << line;
    EXPECT_EQ(found.said_nothing, 0) << line;
  }
}

/// The tolerance of a stretch is hardly wider than that of the same rows in the bound of the whole run.
TEST(CapturedSpans, ToleranceIsThatOfTheWholeRun) {
  for (const char* line : kLines) {
    const Long one(line);
    const HeadOracle whole_run =
        oracle_of(one.x, whole(one.r.c.T, one.r.chunk), one.r.promised, one.family, one.r.c.l2norm);
    for (const HeldSpan& span : one.judge().spans) {
      const Vector<double> rows =
          whole_run.row.segment(span.tokens.begin, span.tokens.end - span.tokens.begin);
      EXPECT_LT(span.oracle.row.norm(), 1.2 * rows.norm()) << line << " at " << span.tokens.begin;
      EXPECT_GT(span.oracle.row.norm(), 0.5 * rows.norm()) << line << " at " << span.tokens.begin;
    }
  }
}

TEST(CapturedSpans, OneWrongRowIsFoundWhereverItIs) {
  for (const char* line : kLines) {
    for (const Index token : {0, 300, 2777, 4096, 5999}) {
      Long one(line);
      one.o.row(token) *= 1.05;
      const SpanJudgement found = one.judge();
      EXPECT_TRUE(holds(found, token)) << line << " token " << token;
      EXPECT_EQ(one.worst_token(found), token) << line;
    }
  }
}

/// A state that is passed on wrongly between two chunks is wrong in the rows after it, until it is forgotten.
TEST(CapturedSpans, AStateThatIsLostOnTheWayIsFound) {
  Long one(kLines[0]);
  const Index at = 3200;
  const Sequence<double> rest = one.x.slice(at, one.x.tokens(), Matrix<double>::Zero(16, 16));
  const Trajectory<double> wrong = one.family.recurrent(rest);
  one.o.bottomRows(one.x.tokens() - at) = wrong.o;
  const SpanJudgement found = one.judge();
  const Index token = one.worst_token(found);
  EXPECT_GE(token, at);
  EXPECT_LT(token, at + span_length(64));
}

TEST(CapturedSpans, AWrongFinalStateIsFound) {
  Long one(kLines[1]);
  one.state *= 1.05;
  const SpanJudgement found = one.judge();
  EXPECT_EQ(found.spans.back().judgement.verdict, Verdict::fail);
  EXPECT_NE(found.spans.back().judgement.gate.find("state"), std::string::npos);
}

/// Without a decay nothing is forgotten: only the first stretch says anything, and the others are counted but
/// do not pass.
TEST(CapturedSpans, AMemoryThatForgetsNothingIsNotJudgedBehindTheFirst) {
  const Long one("v1 linear_attention T=8192 dk=16 dv=16");
  const SpanJudgement found = one.judge(1024);
  ASSERT_EQ(found.spans.size(), 1U);
  EXPECT_EQ(found.spans.front().tokens.begin, 0);
  EXPECT_GE(found.said_nothing, 1);
}

TEST(CapturedSpans, NumbersThatAreNoneAreHeldFirst) {
  Long one(kLines[0]);
  one.o(5000, 3) = std::nan("");
  const SpanJudgement found = one.judge();
  EXPECT_EQ(one.worst_token(found), 5000);
}

/// Kernels of this repository, in every regime that is not exact: no stretch of a right one fails.
TEST(LongCapturedSpans, NoRightKernelFails) {
  std::int64_t held = 0, said_nothing = 0;
  for (const std::string system : {"gated_delta_rule", "delta_rule", "retention", "linear_attention"}) {
    for (const Regime* regime : system_named(system).regimes) {
      if (regime->exact) continue;
      for (const std::string rest :
           {"form=recurrent", "chunk=64 contract=bf16", "chunk=32 contract=bf16_io l2norm=1",
            "chunk=64 contract=tf32 state=random", "chunk=16"}) {
        for (int seed = 0; seed < 3; ++seed) {
          const std::string line =
              fmt::format("v1 {} T=3000 dk=24 dv=16 {} regime={} seed={}", system, rest, regime->name, seed);
          const Long one(line);
          const SpanJudgement found = one.judge(1200);
          said_nothing += found.said_nothing;
          for (const HeldSpan& span : found.spans) {
            held += span.judgement.verdict == Verdict::pass ? 1 : 0;
            EXPECT_NE(span.judgement.verdict, Verdict::fail)
                << line << " at " << span.tokens.begin << ": " << span.judgement.reason;
          }
        }
      }
    }
  }
  EXPECT_GT(held, 1000);
  fmt::print("{} stretches passed, {} said nothing\n", held, said_nothing);
}

}  // namespace
}  // namespace samestate

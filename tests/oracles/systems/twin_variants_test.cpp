/// Kernels that have few of their operator's rounding points.
#include <gtest/gtest.h>

#include <string_view>

#include "oracles/numbers.h"
#include "oracles/systems/operator_twin.h"
#include "oracles/systems/scalars.h"
#include "tests/oracles/systems/drawn_call.h"

namespace samestate {
namespace {

// A layer in one kernel keeps all in fp32 but what it hands from one product to the next.
TEST(OperatorTwin, AKernelMayStoreOneOrTwoPointsAlone) {
  for (const char* name : {"qwen3_next_moe", "gated_attention"}) {
    const bool mixture = std::string_view(name) == "qwen3_next_moe";
    const DrawnSubject drawn(name, mixture ? "sorted" : "online", 27, {}, "bf16", 3);
    SkippedPoints met;
    (void)twin_values(drawn.subject(), {}, &met);
    ASSERT_GT(met.places.size(), 7U) << name;
    for (std::size_t i = 0; i < met.places.size(); ++i) {
      for (const std::size_t k : {i, (i + 3) % met.places.size()}) {
        TwinVariant variant;
        for (std::size_t other = 0; other < met.places.size(); ++other) {
          if (other != i && other != k) variant.skipped.add(met.places[other]);
        }
        variant.skipped.sort();
        const TwinJudgement judged = judge_operator_twin(drawn.subject(), drawn_kernel(drawn, variant), 7);
        EXPECT_EQ(judged.judgement.verdict, Verdict::pass)
            << name << " " << met.places[i].file() << ":" << met.places[i].line() << " and "
            << met.places[k].line() << ": " << judged.judgement.reason << " " << judged.judgement.ratio;
      }
    }
  }
}

}  // namespace
}  // namespace samestate

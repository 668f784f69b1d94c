/// The dendritic layer whose lists are cut into chunks: the layer of the other forms, and which kernels of it are right in 16 bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "oracles/numbers.h"
#include "oracles/systems/operator_twin.h"
#include "oracles/systems/scalars.h"
#include "tests/oracles/systems/drawn_call.h"

namespace samestate {
namespace {

DrawnSubject drawn(const char* form, std::uint64_t seed) {
  return {"dendritic_attention", form, 27, {}, "bf16", seed};
}

SkippedPoints points_of(const DrawnSubject& of) {
  SkippedPoints met;
  (void)twin_values(of.subject(), {}, &met);
  return met;
}

// Without any rounding point the twin is the form in float64.
TEST(DendriticChunks, AreTheCompactedLayer) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const DrawnSubject chunked = drawn("chunked", seed), compacted = drawn("compacted", seed);
    const auto exact = [](const DrawnSubject& of) {
      TwinVariant none;
      none.skipped = points_of(of);
      none.skipped.sort();
      return twin_values(of.subject(), none);
    };
    const Tensors<double> one = exact(chunked), other = exact(compacted);
    for (const auto& [name, x] : one) {
      const Matrix<double>& y = get(other, name);
      ASSERT_EQ(x.size(), y.size()) << name;
      if (x.size() == 0) continue;
      EXPECT_LE((x - y).cwiseAbs().maxCoeff(), 1e-12 * std::max(1.0, y.cwiseAbs().maxCoeff())) << name;
    }
  }
}

TEST(DendriticChunks, HavePointsThatTheOtherFormsDoNot) {
  const auto of_chunks = [](const SkippedPoints& met) {
    return std::ranges::count_if(met.points,
                                 [](const Point& point) { return point.table().name == "explicit_chunk"; });
  };
  // T; beta V, beta K, U and W as one; the state, P, V' and V' decayed.
  EXPECT_EQ(of_chunks(points_of(drawn("chunked", 1))), 6);
  EXPECT_EQ(of_chunks(points_of(drawn("compacted", 1))), 0);
}

// On tensor cores with operands of 16 bit, with a residual of several parts, and with everything in several parts.
TEST(DendriticChunks, KernelsOfOneAndOfSeveralPartsPass) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const DrawnSubject of = drawn("chunked", seed);
    TwinVariant one, residual, several;
    for (const Point& point : points_of(of).points) {
      if (point.table().name == "explicit_chunk") several.skipped.add(point);
    }
    ASSERT_EQ(several.skipped.points.size(), 6U);
    several.skipped.sort();
    residual.skipped.points = {several.skipped.points.front()};
    for (const TwinVariant& variant : {one, residual, several}) {
      const TwinJudgement judged =
          judge_operator_twin(of.subject(), drawn_kernel(of, variant), 7, kGatePolicy);
      EXPECT_EQ(judged.judgement.verdict, Verdict::pass) << seed << " " << judged.judgement.reason;
    }
  }
}

TEST(DendriticChunks, RoundingsThatNoContractHasFail) {
  const DrawnSubject of = drawn("chunked", 1);
  for (const Planted planted : {Planted::functions, Planted::partial, Planted::quotients}) {
    const TwinJudgement judged =
        judge_operator_twin(of.subject(), drawn_kernel(of, {}, planted), 7, kGatePolicy);
    EXPECT_EQ(judged.judgement.verdict, Verdict::fail);
    EXPECT_GT(judged.judgement.twin_ratio, 1.0);
  }
}

}  // namespace
}  // namespace samestate

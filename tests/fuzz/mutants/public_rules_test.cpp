#include "fuzz/mutants/public_rules.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "oracles/contracts.h"
#include "reference/error.h"

namespace samestate {
namespace {

const PublicRule& rule(std::string_view name) {
  for (const PublicRule& r : public_rules()) {
    if (r.name == name) return r;
  }
  throw Error("no rule " + std::string(name));
}

bool accepts(std::string_view name, std::vector<float> expected, std::vector<float> actual,
             const Compared& what = {"chunked", "o"}) {
  return rule(name).accepts(expected, actual, what);
}

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(PublicRules, FlaComparesOneRelativeRms) {
  EXPECT_TRUE(accepts("fla", {1, 1, 1, 1}, {1.0049F, 1.0049F, 1.0049F, 1.0049F}));
  EXPECT_FALSE(accepts("fla", {1, 1, 1, 1}, {1.0051F, 1.0051F, 1.0051F, 1.0051F}));
  EXPECT_FALSE(accepts("fla", {1, 1}, {1.003F, 1.003F}, {"recurrent", "o"}));
  // One wrong row of many is hidden: RMS 0.1 / sqrt(10000) of 1.
  std::vector<float> expected(10000, 1.0F), actual = expected;
  actual[5] = 1.1F;
  EXPECT_TRUE(accepts("fla", expected, actual));
  EXPECT_FALSE(accepts("fla", {1, 1}, {1, kNaN}));
}

TEST(PublicRules, FlaReturnsEarlyOnSmallOutputs) {
  EXPECT_TRUE(accepts("fla", {5e-7F, -5e-7F}, {0, 0}));
  EXPECT_FALSE(accepts("fla", {5e-6F, -5e-6F}, {0, 0}));
}

TEST(PublicRules, FlaInCiOnlyWarns) {
  // An output of zeros passes as long as nothing exceeds 0.3.
  EXPECT_TRUE(accepts("fla_ci", {0.29F, -0.29F}, {0, 0}));
  EXPECT_FALSE(accepts("fla_ci", {0.31F, -0.31F}, {0, 0}));
  EXPECT_TRUE(accepts("fla_ci", {100, 100}, {100.9F, 100.9F}));
  EXPECT_FALSE(accepts("fla_ci", {100, 100}, {101.1F, 101.1F}));
  EXPECT_FALSE(accepts("fla_ci", {1, 1}, {1, kNaN}));
}

TEST(PublicRules, ElementwiseTolerances) {
  EXPECT_TRUE(accepts("flashinfer", {1}, {1.0199F}));
  EXPECT_FALSE(accepts("flashinfer", {1}, {1.0201F}));
  EXPECT_FALSE(accepts("flashinfer", {1}, {1.0061F}, {"chunked", "final_state"}));
  EXPECT_TRUE(accepts("flashinfer", {1}, {1.0059F}, {"chunked", "final_state"}));
  EXPECT_TRUE(accepts("vllm", {1}, {1.0299F}));
  EXPECT_FALSE(accepts("vllm", {1}, {1.0301F}));
  EXPECT_TRUE(accepts("vllm", {0}, {-0.0199F}));
  EXPECT_FALSE(accepts("vllm", {0}, {kNaN}));
}

TEST(PublicRules, NmseIsRelativeToThePower) {
  EXPECT_TRUE(accepts("nmse", {1, 1}, {1.0003F, 1.0003F}));
  EXPECT_FALSE(accepts("nmse", {1, 1}, {1.0004F, 1.0004F}));
  EXPECT_TRUE(accepts("nmse", {0, 0}, {0, 0}));
  EXPECT_FALSE(accepts("nmse", {0, 0}, {1e-10F, 0}));
  EXPECT_FALSE(accepts("nmse", {1, 1}, {1, kNaN}));
}

TEST(PublicRules, InputsAreThoseOfTheTest) {
  const PublicShape& shape = public_shapes("chunked")[4];
  const Batch batch = public_batch("gated_delta_rule", "chunked", shape, contract_named("fp16"), 42);
  ASSERT_EQ(std::ssize(batch.k), shape.B * shape.T * shape.H * shape.D);
  double k2 = 0, least = 0, most = -1e9;
  for (std::int64_t i = 0; i < shape.D; ++i)
    k2 += std::pow(static_cast<double>(batch.k[static_cast<std::size_t>(i)]), 2);
  EXPECT_NEAR(k2, 1.0, 1e-3);
  for (float g : batch.g) {
    least = std::min(least, static_cast<double>(g));
    most = std::max(most, static_cast<double>(g));
  }
  // logsigmoid(U(0, 1)) / 0.1 lies in [-6.93, -3.13].
  EXPECT_GE(least, -6.94);
  EXPECT_LE(most, -3.13);
  for (float beta : batch.beta) EXPECT_EQ(beta, 1.0F);
  EXPECT_TRUE(batch.initial_state.empty());
  EXPECT_TRUE(public_batch("linear_attention", "chunked", shape, contract_named("fp16"), 42).g.empty());
  EXPECT_THROW((void)public_batch("nothing", "chunked", shape, contract_named("fp16"), 42), Error);
}

// The mutants that the rules let through are the argument for bounds by row and by contract.
TEST(PublicRules, LongLetThroughWhatTheGateKills) {
  const auto killed = [](std::string_view name) {
    std::vector<std::string> by;
    for (const PublicVerdict& v : try_public_rules(mutant_named(name))) {
      if (v.killed()) by.emplace_back(v.rule->name);
    }
    return by;
  };
  EXPECT_EQ(killed("no_delta_term.gated_delta_rule.chunked").size(), public_rules().size());
  EXPECT_TRUE(killed("bf16_beta_in_bf16.gated_delta_rule.chunked").empty());
  EXPECT_TRUE(killed("unmasked_exponential.gated_delta_rule.chunked").empty() == false);
}

}  // namespace
}  // namespace samestate

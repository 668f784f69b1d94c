#include <gtest/gtest.h>

#include <cmath>

#include "oracles/contracts.h"
#include "oracles/judge.h"
#include "oracles/systems/family.h"
#include "tests/oracles/bounds/heads.h"

namespace samestate {
namespace {

constexpr const char* kContract = "fp32+v_decayed:bf16+v_new:bf16";

/// `pairs` pairs of key and value in turn.
Sequence<double> in_turn(Index tokens, Index pairs) {
  Sequence<double> x = random_head(4, tokens, 16, 16);
  for (Index t = pairs; t < tokens; ++t) {
    x.k.row(t) = x.k.row(t % pairs).eval();
    x.v.row(t) = x.v.row(t % pairs).eval();
  }
  x.g.setZero();
  x.beta.setOnes();
  return x;
}

HeadOracle oracle(const Sequence<double>& x) {
  return oracle_of(x, whole(x.tokens(), 8), contract_named(kContract), family_named("linear_attention"),
                   false);
}

// An error of 1.2 times what four independent roundings per pair make, at the head's limit, is right if the
// four are a single rounding.
TEST(HeadOracle, HoldsWhatRepeatsInRowHeadAndStateButNotForTheTwin) {
  const Sequence<double> pairs = in_turn(64, 16);
  const HeadOracle repeated = oracle(pairs);
  ASSERT_EQ(repeated.policy.mode, Mode::prob);
  EXPECT_GT(repeated.repeated.norm(), 1.5 * repeated.rms.norm());
  Sequence<double> apart = pairs;
  for (Index t = 0; t < 64; ++t) apart.v.row(t) *= 1.0 + 1e-6 * static_cast<double>(t);
  const HeadOracle alone = oracle(apart);
  EXPECT_EQ(alone.repeated.norm(), 0.0);
  EXPECT_NEAR(repeated.rms.norm() / alone.rms.norm(), 1.0, 1e-3) << "the twin has the same roundings";
  EXPECT_GT(repeated.state, 1.5 * alone.state);
  EXPECT_GT(repeated.row.norm(), alone.row.norm());

  const double size = 1.2 * alone.policy.head_limit * alone.rms.norm() / 8.0;
  const auto judged = [&](const HeadOracle& of) {
    Matrix<double> o = of.exact.o;
    for (Index t = 0; t < 64; ++t) o(t, t % 16) += size;
    return judge_head(of, o, of.exact.state);
  };
  EXPECT_LT(judged(repeated).head_ratio, 1.0);
  EXPECT_NEAR(judged(alone).head_ratio, 1.2, 1e-6);
  EXPECT_EQ(judged(alone).verdict, Verdict::fail);
}

TEST(HeadOracle, TheWorstCaseHoldsItAlready) {
  const HeadOracle few = oracle(in_turn(64, 4));
  EXPECT_EQ(few.policy.mode, Mode::det);
  EXPECT_EQ(few.repeated.norm(), 0.0);
}

}  // namespace
}  // namespace samestate

#include "fuzz/mutants/plain_test.h"

#include <gtest/gtest.h>

#include <limits>

#include "harness/run/kernel_table.h"

namespace samestate {
namespace {

// A limit is a shortcut past the judge, who decides where it says nothing: a NaN (of an element that has none) is beyond no
// error, and no mutant is counted as caught for it.
TEST(PlainTest, WhatHasNoLimitIsTheJudgesToDecide) {
  const Case c = parse_case("v1 linear_attention form=recurrent T=3 dk=2 dv=2 contract=bf16");
  TolerancesOfCase of = tolerances_of(c, KernelTable(kernels()));
  constexpr double kMinute = 60.0;
  const BlindSpot as_is = blind_spot(c, of, {}, kMinute);
  ASSERT_GT(as_is.judge, 0) << "a mutant that differs and that the judge lets pass";
  for (Matrix<double>& limit : of.limits) limit.setConstant(std::numeric_limits<double>::quiet_NaN());
  const BlindSpot without = blind_spot(c, of, {}, kMinute);
  EXPECT_EQ(without.tried, as_is.tried);
  EXPECT_EQ(without.judge, as_is.judge);
  for (Matrix<double>& limit : of.limits) limit.setConstant(0.0);
  EXPECT_EQ(blind_spot(c, of, {}, kMinute).judge, 0) << "the shortcut is taken";
}

}  // namespace
}  // namespace samestate

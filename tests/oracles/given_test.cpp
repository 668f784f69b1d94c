#include "oracles/given.h"

#include <gtest/gtest.h>

#include <cmath>

namespace samestate {
namespace {

TEST(Given, WhatIsReadIsWhatTheRoundedValueStandsFor) {
  for (const Given::Decay decay :
       {Given::Decay::ln, Given::Decay::log2, Given::Decay::linear, Given::Decay::raw}) {
    Given given;
    given.decay = decay;
    for (const double g : {0.0, -1e-6, -0.3, -5.0, -90.0})
      EXPECT_NEAR(given.read_g(g), g, 1e-6 * std::abs(g) + 1e-7) << static_cast<int>(decay);
    EXPECT_EQ(given.read_g(0.0), 0.0);
    EXPECT_LE(given.read_g(-1e38), -103.0);
  }
  Given logit;
  logit.strength = Given::Strength::logit;
  EXPECT_EQ(logit.read_beta(0.0), 0.0);
  EXPECT_EQ(logit.read_beta(1.0), 1.0);
  EXPECT_NEAR(logit.read_beta(0.3), 0.3, 1e-7);
}

}  // namespace
}  // namespace samestate

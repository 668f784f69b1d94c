#include "oracles/given.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "reference/error.h"

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

TEST(Given, ItsTextSaysAllOfIt) {
  EXPECT_EQ(text_of(Given{}), "");
  Given all;
  all.decay = Given::Decay::raw, all.strength = Given::Strength::twice_logit, all.folded_scale = true;
  all.norm = Given::NormPlace::outside, all.norm_epsilon = 1.25e-7;
  all.g = Format::bf16, all.beta = Format::fp16, all.q = Format::bf16;
  const std::string text =
      "decay=raw strength=twice_logit scale=folded l2norm_place=outside g=bf16 beta=fp16 q=bf16 "
      "l2norm_epsilon=1.25e-07";
  EXPECT_EQ(text_of(all), text);
  EXPECT_EQ(given_in(text), all);
  for (const auto& [one, alone] : {std::pair<std::string, Given>{"decay=log2", {.decay = Given::Decay::log2}},
                                   {"strength=logit", {.strength = Given::Strength::logit}},
                                   {"scale=folded", {.folded_scale = true}},
                                   {"l2norm_place=max", {.norm = Given::NormPlace::maximum}},
                                   {"l2norm_epsilon=0.01", {.norm_epsilon = 0.01}},
                                   {"g=fp16", {.g = Format::fp16}}}) {
    EXPECT_EQ(text_of(alone), one);
    EXPECT_EQ(given_in(one), alone) << one;
  }
}

TEST(Given, ATextThatNobodyWroteIsRefused) {
  for (const char* text : {"decay", "decay=", "decay=cubic", "state=vk", "g=tf32", "decay=log2  scale=folded",
                           "l2norm_epsilon=", "l2norm_epsilon=1e-6x", "l2norm_epsilon=0",
                           "l2norm_epsilon=nan", "l2norm_epsilon=1", "q", " decay=log2"})
    EXPECT_THROW((void)given_in(text), Error) << text;
}

}  // namespace
}  // namespace samestate

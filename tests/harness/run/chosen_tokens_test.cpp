#include "harness/run/chosen_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace samestate {
namespace {

std::vector<bool> taken(const ChosenTokens& chosen, Index tokens) {
  std::vector<bool> out(static_cast<std::size_t>(tokens));
  for (const TokenSpan& span : chosen.spans()) {
    for (Index t = span.begin; t < span.end; ++t) out[static_cast<std::size_t>(t)] = true;
  }
  return out;
}

TEST(ChosenTokens, OfAFewAllAreHeld) {
  for (const Index tokens : {Index{0}, Index{1}, kGatePolicy.all_tokens}) {
    const ChosenTokens chosen(tokens, 1, kGatePolicy);
    EXPECT_TRUE(chosen.all());
    EXPECT_EQ(chosen.count(), tokens);
    EXPECT_EQ(ChosenTokens::share(tokens, kGatePolicy), 1.0);
  }
  EXPECT_FALSE(ChosenTokens(kGatePolicy.all_tokens + 1, 1, kGatePolicy).all());
}

TEST(ChosenTokens, OfManyTheEndsAndTheEdgesOfTiles) {
  constexpr Index kTokens = 65537;
  const ChosenTokens chosen(kTokens, 1, kGatePolicy);
  const std::vector<bool> held = taken(chosen, kTokens);
  for (const std::size_t t : {0U, 1U, 31U, 63U, 64U, 127U, 128U, 255U, 256U, 4095U, 4096U, 65535U, 65536U})
    EXPECT_TRUE(held[t]) << t;
  EXPECT_LT(chosen.count(), 400);
  EXPECT_NE(chosen.text(), ChosenTokens(kTokens, 2, kGatePolicy).text()) << "some are drawn";
  EXPECT_EQ(chosen.text(), ChosenTokens(kTokens, 1, kGatePolicy).text());
}

TEST(ChosenTokens, ADeepPolicyHoldsTheGatesTokensAndMore) {
  for (const Index tokens : {Index{400}, Index{1537}, Index{66000}}) {
    const std::vector<bool> gate = taken(ChosenTokens(tokens, 1, kGatePolicy), tokens);
    const std::vector<bool> deep = taken(ChosenTokens(tokens, 1, kDeepPolicy), tokens);
    for (std::size_t t = 0; t < gate.size(); ++t) EXPECT_TRUE(!gate[t] || deep[t]) << t << " of " << tokens;
    EXPECT_GT(std::ranges::count(deep, true), std::ranges::count(gate, true)) << tokens;
  }
}

TEST(ChosenTokens, AddsATokenWithThoseBesideIt) {
  ChosenTokens chosen(1000, 1, kGatePolicy);
  const Index before = chosen.count();
  Index free = 0;
  for (const TokenSpan& span : chosen.spans()) {
    if (span.begin - free > 40) break;
    free = span.end;
  }
  chosen.add(free + 20);
  EXPECT_EQ(chosen.count(), before + 16);
  EXPECT_TRUE(taken(chosen, 1000)[static_cast<std::size_t>(free + 20)]);
  chosen.add(0);
  chosen.add(999);
  EXPECT_EQ(chosen.count(), before + 16) << "held already";
}

// The share on which a plan counts is neither far below nor far above what is compared.
TEST(ChosenTokens, TheShareIsThatOfWhatIsHeld) {
  for (const Index tokens : {512, 1000, 4100, 65811}) {
    const double held =
        static_cast<double>(ChosenTokens(tokens, 1, kGatePolicy).count()) / static_cast<double>(tokens);
    EXPECT_GE(ChosenTokens::share(tokens, kGatePolicy), held) << tokens;
    EXPECT_LE(ChosenTokens::share(tokens, kGatePolicy), 2.0 * held) << tokens;
  }
  for (const Index prompt : {100, 1000, 4100}) {
    const auto tokens = prompt + 5;
    const double held = static_cast<double>(ChosenTokens(tokens, 1, kGatePolicy, prompt).count()) /
                        static_cast<double>(tokens);
    EXPECT_GE(ChosenTokens::share(tokens, kGatePolicy, prompt), held) << prompt;
    EXPECT_LE(ChosenTokens::share(tokens, kGatePolicy, prompt), 2.5 * held) << prompt;
  }
}

// After a prompt, each token is a call of its own, and is compared with its tolerance.
TEST(ChosenTokens, BehindAPromptEveryToken) {
  const ChosenTokens chosen(1040, 1, kGatePolicy, 1000);
  const std::vector<bool> held = taken(chosen, 1040);
  for (std::size_t t = 996; t < 1040; ++t) EXPECT_TRUE(held[t]) << t;
  for (const std::size_t t : {0U, 63U, 64U, 127U, 128U, 511U, 512U}) EXPECT_TRUE(held[t]) << t;
  EXPECT_LT(chosen.count(), 90);
}

}  // namespace
}  // namespace samestate

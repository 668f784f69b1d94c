#include "measure/scale/hand_out_model.h"

#include <gtest/gtest.h>

#include <vector>

#include "reference/error.h"

namespace samestate {
namespace {

std::vector<CaseSeconds> alike(int count, double seconds) {
  return std::vector<CaseSeconds>(static_cast<std::size_t>(count), CaseSeconds{1.0, seconds});
}

HandOutModel free_of_cost(int ranks, std::int64_t cases) {
  HandOutModel model;
  model.ranks = ranks;
  model.cases = cases;
  model.latency = model.message_seconds = model.case_seconds = 0.0;
  return model;
}

TEST(HandOutModel, OneRankTakesWhatItsCasesTake) {
  const HandOutTime time = time_of(alike(100, 0.01), free_of_cost(1, 1000));
  EXPECT_NEAR(time.seconds, 10.0, 1e-6);
  EXPECT_NEAR(time.efficiency, 1.0, 1e-6);
  EXPECT_NEAR(time.idle, 0.0, 1e-6);
}

TEST(HandOutModel, FreeMessagesCostTheLastPiecesAlone) {
  for (const int ranks : {2, 16}) {
    const HandOutTime time = time_of(alike(100, 0.01), free_of_cost(ranks, 20000));
    EXPECT_GT(time.efficiency, 0.98) << ranks;
    EXPECT_LE(time.efficiency, 1.0 + 1e-9) << ranks;
  }
  // With many ranks, rank 0 runs no case.
  const HandOutTime many = time_of(alike(100, 0.01), free_of_cost(100, 200000));
  EXPECT_GT(many.efficiency, 0.97);
  EXPECT_LE(many.efficiency, 0.99);
}

TEST(HandOutModel, ARankZeroThatCannotKeepUpIsWhatTheRunWaitsFor) {
  HandOutModel model = free_of_cost(1024, 1'000'000);
  model.case_seconds = 1e-4;  // ten thousand cases a second, and the ranks take a hundred thousand
  const HandOutTime time = time_of(alike(100, 0.01), model);
  EXPECT_NEAR(time.seconds, 100.0, 2.0);
  EXPECT_NEAR(time.efficiency, 1e4 * 0.01 / 1024, 0.005);
  EXPECT_GT(time.rank_0, 0.97);
  EXPECT_GT(time.idle, 0.85);
  // Shards have a rank 0 each.
  model.shards = 32;
  const HandOutTime parts = time_of(alike(100, 0.01), model);
  EXPECT_GT(parts.efficiency, 0.9);
  EXPECT_LT(parts.rank_0, 0.4);
}

TEST(HandOutModel, ADearCaseAtTheEndIsSeen) {
  std::vector<CaseSeconds> costs = alike(1000, 0.01);
  costs.back() = {100.0, 10.0};
  const HandOutTime time = time_of(costs, free_of_cost(4, 1000));
  EXPECT_GT(time.seconds, 10.0);
  EXPECT_LT(time.efficiency, 0.5);
}

TEST(HandOutModel, WhatIsNoRunIsRefused) {
  EXPECT_THROW((void)time_of(alike(3, 0.0), free_of_cost(2, 10)), Error);
  EXPECT_THROW((void)time_of(alike(3, 0.1), free_of_cost(2, 0)), Error);
  HandOutModel model = free_of_cost(2, 10);
  model.shards = 3;
  EXPECT_THROW((void)time_of(alike(3, 0.1), model), Error);
}

}  // namespace
}  // namespace samestate

#include "harness/systems/tensor_work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <thread>

#include "harness/cases/case_line.h"
#include "oracles/judge_policy.h"

namespace samestate {
namespace {

const TensorSystem& system_of(const Case& c) {
  static std::map<std::string, TensorSystem> known;
  return known.try_emplace(c.system, *find_operator(c.system)).first->second;
}

WorkOfSizes counted(const Case& c) {
  const TensorSystem& system = system_of(c);
  return work_of_sizes(system, c, system.form(c.form));
}

void expect_same(const WorkOfSizes& a, const WorkOfSizes& b, const Case& c) {
  EXPECT_EQ(a.possible, b.possible) << format_case(c);
  EXPECT_EQ(a.by_token, b.by_token) << format_case(c);
  EXPECT_EQ(a.operations, b.operations) << format_case(c);
  EXPECT_EQ(a.elements, b.elements) << format_case(c);
  EXPECT_EQ(a.tensors, b.tensors) << format_case(c);
}

// However much a plan asks for, a thread keeps no more than the cache says.
TEST(WorkCache, ItForgetsWhenItIsFull) {
  WorkCache cache;
  Case c = parse_case("v1 rms_norm T=1");
  const TensorSystem& system = system_of(c);
  std::size_t most = 0;
  for (Index T = 1; T <= static_cast<Index>(2 * WorkCache::kMostSizes + 9); ++T) {
    c.T = T;
    (void)cache.sizes(system, c, system.form(c.form));
    most = std::max(most, cache.entries());
  }
  EXPECT_EQ(most, WorkCache::kMostSizes);
  EXPECT_EQ(cache.entries(), 9U);
}

// Each thing that the work depends on is of the key: where one is left out, another case's work comes back.
TEST(WorkCache, ItGivesTheWorkOfTheCaseThatItIsAskedFor) {
  WorkCache cache;
  for (int round = 0; round < 2; ++round) {
    for (const char* line :
         {"v1 softmax_attention T=40 chunk=8", "v1 softmax_attention T=41 chunk=8",
          "v1 softmax_attention T=40 d=16", "v1 softmax_attention form=online T=40 chunk=8",
          "v1 softmax_attention form=online T=40 chunk=16",
          "v1 softmax_attention form=decode T=40 chunk=8 prefill=9", "v1 selective_scan T=40",
          "v1 selective_scan form=chunked T=40 chunk=8", "v1 selective_scan form=chunked T=40 chunk=4",
          "v1 state_space_duality form=chunked T=40 chunk=4",
          "v1 state_space_duality form=chunked T=40 chunk=20"}) {
      const Case c = parse_case(line);
      const TensorSystem& system = system_of(c);
      expect_same(cache.sizes(system, c, system.form(c.form)), counted(c), c);
    }
  }
  // Cases that the key distinguishes differ, so that the test would notice a key without them.
  const auto operations = [](const char* line) { return counted(parse_case(line)).operations; };
  EXPECT_NE(operations("v1 softmax_attention T=40"), operations("v1 softmax_attention T=41"));
  EXPECT_NE(operations("v1 softmax_attention T=40"), operations("v1 softmax_attention T=40 d=16"));
  EXPECT_NE(operations("v1 state_space_duality form=chunked T=40 chunk=4"),
            operations("v1 state_space_duality form=chunked T=40 chunk=20"));
  EXPECT_TRUE(cache.keeps_sixteen_bits("bf16"));
  EXPECT_FALSE(cache.keeps_sixteen_bits("fp32"));
  EXPECT_TRUE(cache.keeps_sixteen_bits("bf16"));
}

// A thread's cache changes no plan of another, and no work.
TEST(WorkCache, ThreadsHaveTheirOwn) {
  const Case c = parse_case("v1 softmax_attention form=online T=77 chunk=8");
  const double here = system_named(c.system).work(c, kGatePolicy);
  const std::size_t entries = WorkCache::of_thread().entries();
  double there = 0.0;
  std::thread([&] {
    EXPECT_EQ(WorkCache::of_thread().entries(), 0U);
    there = system_named(c.system).work(c, kGatePolicy);
  }).join();
  EXPECT_EQ(here, there);
  EXPECT_EQ(WorkCache::of_thread().entries(), entries);
}

}  // namespace
}  // namespace samestate

#include "optimized/cpu/head_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "optimized/cpu/twin.h"
#include "reference/error.h"
#include "tests/optimized/call.h"

namespace samestate {
namespace {

using testing::Call;
using testing::make_call;
using testing::Shape;

using Cuts = std::vector<std::int64_t>;

constexpr std::array kSystems = {&cpu::GATED_DELTA_RULE, &cpu::DELTA_RULE, &cpu::RETENTION,
                                 &cpu::LINEAR_ATTENTION};

Arguments arguments_of(Call& call, const Cuts& cuts) {
  Arguments a = call.arguments();
  if (!cuts.empty()) a.cuts = row_major<const std::int64_t, 1>(cuts.data(), {std::ssize(cuts)});
  return a;
}

Call over_ranks(Call call, const cpu::System& system, const Cuts& cuts, const cpu::TaskOrder& order = {},
                const Contract& contract = {}) {
  const Outcome outcome = cpu::run_head_parallel_in(system, arguments_of(call, cuts), contract, order);
  EXPECT_EQ(outcome.kind, Outcome::Kind::ran) << outcome.reason;
  return call;
}

/// The same by the chunked form.
Call chunked(Call call, const std::string& name) {
  EXPECT_EQ(call.run(testing::kernel_named("cpu." + name + ".chunked")).kind, Outcome::Kind::ran);
  return call;
}

/// Compares bits: rows that belong to no sequence are zero in both.
void expect_same(const Call& a, const Call& b, const std::string& what) {
  EXPECT_EQ(a.o, b.o) << what;
  EXPECT_EQ(a.final_state, b.final_state) << what;
}

/// Divisions of six value heads: one rank, inside groups, empty ranks, one head each, more ranks than heads.
const std::vector<Cuts> kCuts = {{},
                                 {0, 6},
                                 {0, 2, 4, 6, 6},
                                 {0, 0, 1, 5, 6, 6},
                                 {0, 3, 6},
                                 {0, 1, 2, 3, 4, 5, 6},
                                 {0, 1, 2, 3, 4, 5, 6, 6, 6}};

TEST(HeadParallelKernel, AnyCutsAreTheChunkedFormInEveryBit) {
  const Shape dense{.B = 2, .T = 21, .Hk = 2, .Hv = 6, .dk = 5, .dv = 3};
  const Shape packed{.B = 1, .T = 37, .Hk = 3, .Hv = 6, .dk = 5, .dv = 3, .offsets = {3, 3, 20, 21, 35}};
  for (const cpu::System* system : kSystems) {
    for (const Shape& shape : {dense, packed}) {
      for (const HeadMap map : {HeadMap::interleaved, HeadMap::tiled}) {
        Call call = make_call(system->name, shape, 8);
        call.head_map = map;
        const Call one = chunked(call, std::string(system->name));
        for (const Cuts& cuts : kCuts) {
          expect_same(over_ranks(call, *system, cuts), one,
                      std::string(system->name) + ", " + std::to_string(cuts.size()) + " cuts");
        }
      }
    }
  }
}

// Ranks end in any order, by any threads: the same bits.
TEST(HeadParallelKernel, OrderOfCompletionChangesNoBit) {
  Call call = make_call("gated_delta_rule", {.B = 2, .T = 30, .Hk = 2, .Hv = 6, .dk = 9, .dv = 5}, 8);
  const Cuts cuts = {0, 1, 1, 4, 5, 6};
  const Call first = over_ranks(call, cpu::GATED_DELTA_RULE, cuts);
  for (const unsigned seed : {0U, 1U, 2U, 3U}) {
    const auto order = [seed](std::int64_t count) {
      std::vector<std::int64_t> places(static_cast<std::size_t>(count));
      std::iota(places.begin(), places.end(), std::int64_t{0});
      if (seed == 0) {
        std::reverse(places.begin(), places.end());
      } else {
        std::shuffle(places.begin(), places.end(), std::mt19937(seed));
      }
      return places;
    };
    expect_same(over_ranks(call, cpu::GATED_DELTA_RULE, cuts, order), first, std::to_string(seed));
  }
  for (const int threads : {2, 3, 8, 64}) {
    call.threads = threads;
    expect_same(over_ranks(call, cpu::GATED_DELTA_RULE, cuts), first, std::to_string(threads));
  }
}

// A rank that did not run leaves its heads as they were, and nothing of the others'.
TEST(HeadParallelKernel, ARankWritesItsOwnHeadsAlone) {
  const Call call = make_call("retention", {.B = 2, .T = 9, .Hk = 1, .Hv = 4, .dk = 3, .dv = 2}, 4);
  const Cuts cuts = {0, 1, 3, 4};
  const Call all = over_ranks(call, cpu::RETENTION, cuts);
  const Call second =
      over_ranks(call, cpu::RETENTION, cuts, [](std::int64_t) { return std::vector<std::int64_t>{1}; });
  for (std::size_t i = 0; i < all.o.size(); ++i) {
    const std::size_t h = i / 2 % 4;
    if (h == 1 || h == 2) {
      EXPECT_EQ(second.o[i], all.o[i]);
    } else {
      EXPECT_TRUE(std::isnan(second.o[i])) << i;
    }
  }
}

// Its states go on where they lie, in place, over the same ranks and others: one call of all tokens says.
TEST(HeadParallelKernel, ResumeAfterIt) {
  Call call = make_call("gated_delta_rule", {.T = 40, .Hk = 2, .Hv = 6, .dk = 6, .dv = 4}, 8);
  const Call whole = chunked(call, "gated_delta_rule");
  const Arguments all = arguments_of(call, {});
  const Cuts first = {0, 2, 4, 6, 6}, second = {0, 5, 5, 6};
  const auto tokens = [&](std::int64_t begin, std::int64_t end, const Cuts& cuts) {
    Arguments a = all;
    for (auto* x : {&a.q, &a.k, &a.v}) *x = x->slice(1, begin, end);
    a.g = a.g.slice(1, begin, end);
    a.beta = a.beta.slice(1, begin, end);
    a.o = a.o.slice(1, begin, end);
    if (begin > 0) a.initial_state = a.final_state;
    a.cuts = row_major<const std::int64_t, 1>(cuts.data(), {std::ssize(cuts)});
    ASSERT_EQ(cpu::run_head_parallel_in(cpu::GATED_DELTA_RULE, a, {}, {}).kind, Outcome::Kind::ran);
  };
  tokens(0, 16, first);  // two whole chunks, so that the partition is that of one call
  tokens(16, 40, second);
  expect_same(call, whole, "resumed");
}

TEST(HeadParallelKernel, TwinIsTheChunkedForms) {
  Contract bf16;
  bf16.W = bf16.U = bf16.P = bf16.T = bf16.state_operand = bf16.v_new = bf16.output = Format::bf16;
  const Call call = make_call("gated_delta_rule", {.T = 37, .Hk = 1, .Hv = 3, .dk = 12, .dv = 7}, 8);
  Call twin = call, other = call;
  ASSERT_EQ(run_twin("gated_delta_rule", "head_parallel", arguments_of(twin, {0, 2, 3}), bf16).kind,
            Outcome::Kind::ran);
  ASSERT_EQ(run_twin("gated_delta_rule", "chunked", arguments_of(other, {}), bf16).kind, Outcome::Kind::ran);
  expect_same(twin, other, "twin");
}

TEST(HeadParallelKernel, RefusesWhatItCannotDo) {
  Call call = make_call("retention", {.T = 10, .Hk = 1, .Hv = 2, .dk = 2, .dv = 1}, 0);
  EXPECT_THROW((void)cpu::run_head_parallel<cpu::RETENTION>(arguments_of(call, {}), {}), Error);
  call.chunk = 4;
  EXPECT_THROW((void)cpu::run_head_parallel<cpu::RETENTION>(arguments_of(call, {0, 10}), {}), Error);
  EXPECT_THROW((void)cpu::run_head_parallel<cpu::RETENTION>(arguments_of(call, {0, 2, 1, 2}), {}), Error);
  const Outcome outcome = cpu::run_head_parallel<cpu::LINEAR_ATTENTION>(arguments_of(call, {}), {});
  EXPECT_EQ(outcome.kind, Outcome::Kind::unsupported);
}

// No tokens, and a state that is not wanted.
TEST(HeadParallelKernel, WithoutTokensTheStatesStay) {
  const Call call = make_call("delta_rule", {.T = 0, .Hk = 1, .Hv = 3, .dk = 4, .dv = 2}, 8);
  const Call out = over_ranks(call, cpu::DELTA_RULE, {0, 2, 3});
  EXPECT_EQ(out.final_state, call.initial_state);
  Call unwanted = make_call("delta_rule", {.T = 5, .Hk = 1, .Hv = 3, .dk = 4, .dv = 2}, 8);
  const Call wanted = over_ranks(unwanted, cpu::DELTA_RULE, {0, 2, 3});
  Arguments a = arguments_of(unwanted, {});
  a.final_state = {};
  ASSERT_EQ(cpu::run_head_parallel_in(cpu::DELTA_RULE, a, {}, {}).kind, Outcome::Kind::ran);
  EXPECT_EQ(unwanted.o, wanted.o);
}

}  // namespace
}  // namespace samestate

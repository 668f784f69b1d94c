#include "optimized/cpu/sequence_parallel.h"

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
  const Outcome outcome = cpu::run_sequence_parallel_in(system, arguments_of(call, cuts), contract, order);
  EXPECT_EQ(outcome.kind, Outcome::Kind::ran) << outcome.reason;
  return call;
}

/// Cuts of every kind: one rank, even, with short and empty parts, more ranks than tokens.
std::vector<Cuts> cuts_of(std::int64_t T) {
  Cuts each(static_cast<std::size_t>(T) + 3, T);
  std::iota(each.begin(), each.end() - 2, std::int64_t{0});
  return {{}, {0, T}, {0, 16, 32, T}, {0, 0, 5, 5, 23, T, T}, {0, 1, T - 1, T}, each};
}

// Integers: whatever the cuts, every bit is the recurrence's.
TEST(SequenceParallelKernel, ExactDataGiveTheSameBitsForAnyCuts) {
  const Shape dense{.B = 2, .T = 37, .Hk = 2, .Hv = 4, .dk = 5, .dv = 3};
  const Shape packed{.B = 1, .T = 37, .Hk = 1, .Hv = 2, .dk = 5, .dv = 3, .offsets = {3, 3, 20, 21, 35}};
  for (const cpu::System* system : kSystems) {
    for (const Shape& shape : {dense, packed}) {
      const Call call = make_call(system->name, shape, 8, true);
      const testing::Expected expected = testing::expected_of(call, system->delta);
      for (const Cuts& cuts : cuts_of(37)) {
        const Call out = over_ranks(call, *system, cuts);
        EXPECT_EQ(testing::relative_error(out.o, expected.o), 0.0) << system->name << ", " << cuts.size();
        EXPECT_EQ(testing::relative_error(out.final_state, expected.state), 0.0)
            << system->name << ", " << cuts.size();
      }
    }
  }
}

TEST(SequenceParallelKernel, OrdinaryDataStayNearTheRecurrence) {
  for (const cpu::System* system : kSystems) {
    const Call call = make_call(system->name, {.B = 2, .T = 37, .Hk = 1, .Hv = 2, .dk = 12, .dv = 7}, 8);
    const testing::Expected expected = testing::expected_of(call, system->delta);
    for (const Cuts& cuts : cuts_of(37)) {
      const Call out = over_ranks(call, *system, cuts);
      EXPECT_LE(testing::relative_error(out.o, expected.o), testing::rounding_allowance(call))
          << system->name;
      EXPECT_LE(testing::relative_error(out.final_state, expected.state), testing::rounding_allowance(call))
          << system->name;
    }
  }
}

// One rank is the chunked form itself.
TEST(SequenceParallelKernel, OneRankIsTheChunkedForm) {
  for (const cpu::System* system : kSystems) {
    const std::string name(system->name);
    Call chunked = make_call(name, {.T = 37, .Hk = 1, .Hv = 2, .dk = 12, .dv = 7}, 8);
    const Call one = over_ranks(chunked, *system, {0, 37});
    const Outcome outcome = chunked.run(testing::kernel_named("cpu." + name + ".chunked"));
    ASSERT_EQ(outcome.kind, Outcome::Kind::ran);
    EXPECT_EQ(one.o, chunked.o) << name;
    EXPECT_EQ(one.final_state, chunked.final_state) << name;
  }
}

// Ranks end in any order, by any threads: the same bits.
TEST(SequenceParallelKernel, OrderOfCompletionChangesNoBit) {
  Call call = make_call("gated_delta_rule", {.B = 2, .T = 50, .Hk = 1, .Hv = 2, .dk = 9, .dv = 5}, 8);
  const Cuts cuts = {0, 7, 7, 24, 41, 50};
  const Call first = over_ranks(call, cpu::GATED_DELTA_RULE, cuts);
  for (const unsigned seed : {0U, 1U, 2U, 3U}) {
    const Call other = over_ranks(call, cpu::GATED_DELTA_RULE, cuts, [seed](std::int64_t count) {
      std::vector<std::int64_t> places(static_cast<std::size_t>(count));
      std::iota(places.begin(), places.end(), std::int64_t{0});
      if (seed == 0) {
        std::reverse(places.begin(), places.end());
      } else {
        std::shuffle(places.begin(), places.end(), std::mt19937(seed));
      }
      return places;
    });
    EXPECT_EQ(other.o, first.o);
    EXPECT_EQ(other.final_state, first.final_state);
  }
  for (const int threads : {2, 3, 8}) {
    call.threads = threads;
    const Call other = over_ranks(call, cpu::GATED_DELTA_RULE, cuts);
    EXPECT_EQ(other.o, first.o);
    EXPECT_EQ(other.final_state, first.final_state);
  }
}

// The last rank writes the final state where the first ones read the initial one.
TEST(SequenceParallelKernel, InPlaceStateIsReadBeforeItIsWritten) {
  Call call = make_call("delta_rule", {.T = 30, .dk = 6, .dv = 4}, 4);
  const Cuts cuts = {0, 9, 20, 30};
  const Call apart = over_ranks(call, cpu::DELTA_RULE, cuts);
  for (const int threads : {1, 4}) {
    Call in_place = call;
    in_place.threads = threads;
    Arguments a = arguments_of(in_place, cuts);
    a.final_state = row_major<float, 4>(in_place.initial_state.data(), {1, 1, 6, 4});
    const Outcome outcome = cpu::run_sequence_parallel_in(cpu::DELTA_RULE, a, {}, {});
    ASSERT_EQ(outcome.kind, Outcome::Kind::ran);
    EXPECT_EQ(in_place.initial_state, apart.final_state);
    EXPECT_EQ(in_place.o, apart.o);
  }
}

// Stop after a call over ranks and go on with another: what one call over all of them says.
TEST(SequenceParallelKernel, ResumeAfterIt) {
  Call call = make_call("retention", {.T = 40, .dk = 6, .dv = 4}, 8, true);
  const Call whole = over_ranks(call, cpu::RETENTION, {0, 16, 40});
  Call head = make_call("retention", {.T = 40, .dk = 6, .dv = 4}, 8, true);
  Arguments a = arguments_of(head, {});
  const Arguments all = a;
  const Cuts first = {0, 10, 10, 21}, second = {0, 3, 19};
  for (auto* x : {&a.q, &a.k, &a.v}) *x = x->slice(1, 0, 21);
  a.g = a.g.slice(1, 0, 21);
  a.o = a.o.slice(1, 0, 21);
  a.cuts = row_major<const std::int64_t, 1>(first.data(), {4});
  ASSERT_EQ(cpu::run_sequence_parallel_in(cpu::RETENTION, a, {}, {}).kind, Outcome::Kind::ran);
  Arguments b = all;
  for (auto* x : {&b.q, &b.k, &b.v}) *x = x->slice(1, 21, 40);
  b.g = b.g.slice(1, 21, 40);
  b.o = b.o.slice(1, 21, 40);
  b.initial_state = b.final_state;
  b.cuts = row_major<const std::int64_t, 1>(second.data(), {3});
  ASSERT_EQ(cpu::run_sequence_parallel_in(cpu::RETENTION, b, {}, {}).kind, Outcome::Kind::ran);
  EXPECT_EQ(head.o, whole.o);
  EXPECT_EQ(head.final_state, whole.final_state);
}

TEST(SequenceParallelKernel, TwinRoundsAsTheKernelDoes) {
  Contract bf16;
  bf16.W = bf16.U = bf16.P = bf16.T = bf16.state_operand = bf16.v_new = bf16.output = Format::bf16;
  const Call call = make_call("gated_delta_rule", {.T = 37, .dk = 12, .dv = 7}, 8);
  const Cuts cuts = {0, 11, 11, 30, 37};
  const Call kernel = over_ranks(call, cpu::GATED_DELTA_RULE, cuts, {}, bf16);
  Call twin = call;
  const Outcome outcome = run_twin("gated_delta_rule", "sequence_parallel", arguments_of(twin, cuts), bf16);
  ASSERT_EQ(outcome.kind, Outcome::Kind::ran) << outcome.reason;
  const Call exact = over_ranks(call, cpu::GATED_DELTA_RULE, cuts);
  // Its sums are in another order: near it, where the contract's roundings are far from fp32.
  EXPECT_LT(testing::relative_error(twin.final_state, kernel.final_state),
            0.2 * testing::relative_error(exact.final_state, kernel.final_state));
}

TEST(SequenceParallelKernel, RefusesWhatItCannotDo) {
  Call call = make_call("retention", {.T = 10, .dk = 2, .dv = 1}, 0);
  EXPECT_THROW((void)cpu::run_sequence_parallel<cpu::RETENTION>(arguments_of(call, {}), {}), Error);
  call.chunk = 4;
  EXPECT_THROW((void)cpu::run_sequence_parallel<cpu::RETENTION>(arguments_of(call, {0, 11, 10}), {}), Error);
  Call gated = make_call("retention", {.T = 10, .dk = 2, .dv = 1}, 4);
  const Outcome outcome = cpu::run_sequence_parallel<cpu::LINEAR_ATTENTION>(arguments_of(gated, {}), {});
  EXPECT_EQ(outcome.kind, Outcome::Kind::unsupported);
}

}  // namespace
}  // namespace samestate

#include "oracles/path.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "oracles/bounds/chunked.h"
#include "oracles/bounds/recurrent.h"
#include "oracles/contracts.h"
#include "reference/error.h"
#include "tests/facts.h"
#include "tests/oracles/bounds/heads.h"

namespace samestate {
namespace {

const Family& gated() { return family_named("gated_delta_rule"); }

/// Largest relative difference of the numbers that tolerances are made of.
double difference(const Bound& a, const Bound& b) {
  const auto relative = [](const auto& x, const auto& y) {
    return x.size() == 0 ? 0.0 : (x - y).norm() / std::max(y.norm(), 1e-300);
  };
  return std::max({relative(a.before_output, b.before_output), relative(a.coherent, b.coherent),
                   relative(a.output_rounding, b.output_rounding), relative(a.rms, b.rms),
                   relative(a.state_rows, b.state_rows), relative(a.carry.sigma, b.carry.sigma)});
}

Index tokens_of(const Path& path) {
  return std::accumulate(path.begin(), path.end(), Index{0},
                         [](Index sum, const Segment& s) { return sum + s.tokens; });
}

TEST(Path, OfOneCallTwoCallsAndDecode) {
  EXPECT_EQ(whole(9, 4).size(), 1U);
  for (Index at = 0; at <= 9; ++at) {
    const Path cut = split(9, 4, at);
    ASSERT_EQ(cut.size(), 2U);
    EXPECT_EQ(cut[0].tokens, at);
    EXPECT_EQ(cut[1].chunk, 4);
    EXPECT_EQ(tokens_of(cut), 9);
    const Path decode = prefill_and_decode(9, 4, at);
    ASSERT_EQ(decode.size(), 2U);
    EXPECT_EQ(decode[0].tokens, at);
    EXPECT_EQ(decode[0].chunk, 4);
    EXPECT_FALSE(decode[0].token_by_token);
    EXPECT_EQ(decode[1].chunk, 0);
    EXPECT_TRUE(decode[1].token_by_token);
    EXPECT_EQ(tokens_of(decode), 9);
  }
}

TEST(BoundOf, SplitIsTheChainOfItsSegments) {
  const Sequence<double> x = random_head(1, 14, 5, 4);
  const Trajectory<double> head = gated().recurrent(x.slice(0, 6, x.initial_state));
  const Sequence<double> tail = x.slice(6, 14, head.state);
  for (const char* name : {"fp32", "bf16", "bf16_state"}) {
    const Contract& contract = contract_named(name);
    for (const Mode mode : {Mode::det, Mode::prob, Mode::semi}) {
      const Bound first = bound_chunked(x.slice(0, 6, x.initial_state), contract, {true}, mode, 4);
      const Bound chunked = bound_chunked(tail, contract, {true}, mode, 4, &first.carry);
      const Bound found = bound_of(x, split(14, 4, 6), contract, gated(), mode, false);
      EXPECT_TRUE(found.before_output.head(6) == first.before_output) << name;
      EXPECT_TRUE(found.before_output.tail(8) == chunked.before_output) << name;
      EXPECT_TRUE(found.rms.tail(8) == chunked.rms) << name;
      EXPECT_TRUE(found.o.bottomRows(8) == chunked.o) << name;
      EXPECT_EQ(found.state, chunked.state) << name;
      EXPECT_EQ(found.largest, std::max(first.largest, chunked.largest)) << name;

      const Bound decoded = bound_recurrent(tail, recurrent_contract(contract), {true}, mode, &first.carry);
      const Bound path = bound_of(x, prefill_and_decode(14, 4, 6), contract, gated(), mode, false);
      EXPECT_TRUE(path.before_output.tail(8) == decoded.before_output) << name;
      EXPECT_EQ(path.state, decoded.state) << name;
      // The error that the first segment leaves must reach the second.
      const Bound fresh = bound_chunked(tail, contract, {true}, mode, 4);
      EXPECT_GT(chunked.before_output(0), fresh.before_output(0)) << name;
    }
  }
}

TEST(BoundOf, CutAtAnEdgeChangesNothingAndElsewhereItDoes) {
  const Sequence<double> x = random_head(2, 16, 5, 4);
  for (const char* name : {"fp32", "bf16"}) {
    const Contract& contract = contract_named(name);
    for (const Mode mode : {Mode::det, Mode::prob}) {
      const Bound one = bound_of(x, whole(16, 4), contract, gated(), mode, false);
      for (const Index edge : {0, 4, 8, 12, 16}) {
        const Bound two = bound_of(x, split(16, 4, edge), contract, gated(), mode, false);
        EXPECT_LT(difference(one, two), 1e-9) << name << " cut at " << edge;
      }
      EXPECT_GT(difference(one, bound_of(x, split(16, 4, 6), contract, gated(), mode, false)), 1e-6) << name;
      const Bound recurrent = bound_of(x, whole(16, 0), contract, gated(), mode, false);
      for (Index cut = 0; cut <= 16; ++cut) {
        const Bound two = bound_of(x, split(16, 0, cut), contract, gated(), mode, false);
        EXPECT_LT(difference(recurrent, two), 1e-9) << name << " recurrent, cut at " << cut;
      }
    }
  }
}

TEST(BoundOf, NormalisationInTheKernelCosts) {
  const Sequence<double> x = random_head(3, 8, 4, 4);
  for (const Index chunk : {0, 4}) {
    const Bound without = bound_of(x, whole(8, chunk), {}, gated(), Mode::prob, false);
    const Bound with = bound_of(x, whole(8, chunk), {}, gated(), Mode::prob, true);
    EXPECT_TRUE((with.before_output.array() > without.before_output.array()).all()) << chunk;
  }
}

TEST(BoundOf, NormalisedKeysOnAGridShareTheirRounding) {
  const Sequence<double> x = random_head(3, 8, 4, 4);
  const Contract bf16 = with_l2norm(contract_named("bf16"));
  const double factor = l2norm_error(Mode::prob, 4);
  const double shared = std::hypot(factor, 0x1p-8 / std::sqrt(3.0));
  const Bound found = bound_of(x, whole(8, 4), bf16, gated(), Mode::prob, true);
  EXPECT_TRUE(found.rms == bound_chunked(x, bf16, {true}, Mode::prob, 4, nullptr, shared).rms);
  EXPECT_GT(found.rms(7), bound_chunked(x, bf16, {true}, Mode::prob, 4, nullptr, factor).rms(7));
  const Bound worst = bound_of(x, whole(8, 4), bf16, gated(), Mode::det, true);
  EXPECT_TRUE(worst.rms ==
              bound_chunked(x, bf16, {true}, Mode::det, 4, nullptr, l2norm_error(Mode::det, 4)).rms);
}

using Cuts = std::vector<Index>;

TEST(RanksOfAPath, EqualPartsAreOfWholeChunks) {
  EXPECT_EQ((Ranks{1}.cuts(40, 8)), Cuts{});
  EXPECT_EQ((Ranks{3}.cuts(48, 8)), (Cuts{0, 16, 32, 48}));
  EXPECT_EQ((Ranks{3}.cuts(33, 8)), (Cuts{0, 16, 32, 33}));     // the last is short
  EXPECT_EQ((Ranks{4}.cuts(17, 8)), (Cuts{0, 8, 16, 17, 17}));  // .. and those behind it empty
  EXPECT_EQ((Ranks{3}.cuts(0, 8)), (Cuts{0, 0, 0, 0}));
  EXPECT_EQ((Ranks{5}.cuts(2, 1)), (Cuts{0, 1, 2, 2, 2, 2}));
}

TEST(RanksOfAPath, DrawnCutsAreTheSeedsAndLeaveSomeEmpty) {
  int empty = 0, inside_chunk = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Cuts cuts = Ranks{5, true, seed}.cuts(37, 8);
    EXPECT_EQ(cuts, (Ranks{5, true, seed}.cuts(37, 8)));
    ASSERT_EQ(cuts.size(), 6U);
    EXPECT_EQ(cuts.front(), 0);
    EXPECT_EQ(cuts.back(), 37);
    EXPECT_TRUE(std::is_sorted(cuts.begin(), cuts.end()));
    for (std::size_t r = 0; r < 5; ++r) empty += cuts[r] == cuts[r + 1] ? 1 : 0;
    for (const Index cut : cuts) inside_chunk += cut % 8 != 0 && cut != 37 ? 1 : 0;
  }
  EXPECT_GT(empty, 40);
  EXPECT_GT(inside_chunk, 100);
}

TEST(RanksOfAPath, PackedSequencesHaveTheirPartOfTheRow) {
  BatchShape shape;
  shape.offsets = {0, 5, 5, 20, 30};
  const Path row = {{30, 8, false, {0, 3, 16, 16, 30}}};
  EXPECT_EQ(path_of_sequence(row, shape, 0).front().cuts, (Cuts{0, 3, 5, 5, 5}));
  EXPECT_EQ(path_of_sequence(row, shape, 1).front().cuts, (Cuts{0, 0, 0, 0, 0}));
  EXPECT_EQ(path_of_sequence(row, shape, 2).front().cuts, (Cuts{0, 0, 11, 11, 15}));
  EXPECT_EQ(path_of_sequence(row, shape, 3).front().tokens, 10);
  EXPECT_TRUE(path_of_sequence(whole(30, 8), shape, 2).front().cuts.empty());
  shape.offsets.clear();
  EXPECT_EQ(path_of_sequence(row, shape, 1).front().cuts, row.front().cuts);
}

// No bound knows of ranks that divide heads: the segments are those of one rank, and their states come from where they came.
TEST(RanksOfAPath, HeadsAreDividedBesideTheTokens) {
  const Ranks four{4, false, 0, 6};
  EXPECT_EQ(whole(30, 8, four).front().head_cuts, (Cuts{0, 2, 4, 6, 6}));
  EXPECT_TRUE(whole(30, 8, four).front().cuts.empty());
  EXPECT_TRUE(whole(30, 0, four).front().head_cuts.empty());  // token by token there are no ranks
  EXPECT_EQ((whole(30, 8, {9, false, 0, 3}).front().head_cuts), (Cuts{0, 1, 2, 3, 3, 3, 3, 3, 3, 3}));
  EXPECT_EQ((whole(30, 8, {1, false, 0, 3}).front().head_cuts), Cuts{});
  const Cuts drawn = whole(30, 8, {5, true, 3, 6}).front().head_cuts;
  EXPECT_EQ(drawn.size(), 6U);
  EXPECT_EQ(drawn.back(), 6);
  EXPECT_TRUE(std::is_sorted(drawn.begin(), drawn.end()));
  const Path cut = split(30, 8, 11, four);
  EXPECT_EQ(cut[0].head_cuts, cut[1].head_cuts);
  BatchShape shape;
  shape.offsets = {0, 5, 30};
  EXPECT_EQ(path_of_sequence(whole(30, 8, four), shape, 1).front().head_cuts, (Cuts{0, 2, 4, 6, 6}));
  const Sequence<double> x = random_head(1, 24, 5, 4);
  const Contract& contract = contract_named("bf16");
  EXPECT_EQ(difference(bound_of(x, whole(24, 8, four), contract, gated(), Mode::prob, false),
                       bound_of(x, whole(24, 8), contract, gated(), Mode::prob, false)),
            0.0);
}

TEST(RanksOfAPath, PartByPart) {
  const auto tokens = [](const Path& path) {
    std::vector<Index> out;
    for (const Segment& s : path) out.push_back(s.tokens);
    return out;
  };
  EXPECT_EQ(tokens(part_by_part({{30, 8, false, {0, 3, 3, 16, 30, 30}}, {2, 0, true}})),
            (std::vector<Index>{3, 13, 14, 2}));
  EXPECT_EQ(tokens(part_by_part({{0, 8, false, {0, 0, 0}}})), (std::vector<Index>{0}));
}

// The roundings of composition are added, and stay small in comparison with those of the parts.
TEST(BoundOf, RanksCostWhatCompositionRounds) {
  const Sequence<double> x = random_head(5, 24, 5, 4);
  for (const char* name : {"fp32", "bf16", "bf16_state"}) {
    const Contract& contract = contract_named(name);
    for (const Mode mode : {Mode::det, Mode::prob, Mode::semi}) {
      const Bound one = bound_of(x, whole(24, 4), contract, gated(), mode, false);
      const Bound ranks = bound_of(x, whole(24, 4, {3}), contract, gated(), mode, false);
      EXPECT_FALSE(ranks.vacuous);
      EXPECT_TRUE(ranks.before_output.head(8) == one.before_output.head(8)) << name;  // rank 0
      EXPECT_GT(ranks.before_output(8), one.before_output(8)) << name;
      EXPECT_GT(ranks.state, one.state) << name;
      if (mode == Mode::prob) {
        EXPECT_LT(ranks.state, 3 * one.state) << name;
      }
      // Ranks without tokens change nothing.
      const Path empty = {{24, 4, false, {0, 0, 8, 8, 8, 16, 24, 24}}};
      EXPECT_EQ(difference(bound_of(x, empty, contract, gated(), mode, false), ranks), 0.0) << name;
    }
  }
}

// Tokens without a gate keep what the gates before them were off by.
TEST(BoundOf, CoherentDecayOutlivesTheGates) {
  Sequence<double> x = random_head(6, 40, 5, 4);
  x.g.head(20).setConstant(-0.1);
  x.g.tail(20).setZero();
  for (const Index chunk : {0, 5}) {
    const Bound one = bound_of(x, whole(40, chunk), {}, gated(), Mode::prob, false);
    const Bound two = bound_of(x, split(40, chunk, 20), {}, gated(), Mode::prob, false);
    EXPECT_GT(one.coherent(39), 0.0);
    EXPECT_NEAR(two.coherent(39), one.coherent(39), 1e-3 * one.coherent(39)) << chunk;
    EXPECT_NEAR(two.state, one.state, 1e-3 * one.state) << chunk;
  }
}

TEST(BoundOf, WrongNumberOfTokensThrows) {
  const Sequence<double> x = random_head(4, 8, 3, 3);
  const auto bound = [&](const Path& path) { return bound_of(x, path, {}, gated(), Mode::prob, false); };
  EXPECT_NO_THROW(static_cast<void>(bound(whole(8, 4))));
  EXPECT_THROW(static_cast<void>(bound(whole(7, 4))), Error);
  EXPECT_THROW(static_cast<void>(bound(whole(9, 4))), Error);
  EXPECT_THROW(static_cast<void>(bound({{4, 4, false}, {3, 0, true}})), Error);
  EXPECT_THROW(static_cast<void>(bound({})), Error);
  try {
    static_cast<void>(bound(whole(9, 4)));
  } catch (const Error& error) {
    EXPECT_EQ(lacking(std::string(error.what()), "9 8"), "") << error.what();
  }
}

}  // namespace
}  // namespace samestate

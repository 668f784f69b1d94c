#include "reference/head_parallel.h"

#include <gtest/gtest.h>

#include "reference/delta_rule.h"
#include "reference/gated_delta_rule.h"
#include "reference/linear_attention.h"
#include "reference/retention.h"
#include "reference/scalars.h"
#include "tests/reference/draw.h"

namespace samestate {
namespace {

using test::draw;

template <class Scalar>
Heads<Scalar> drawn(Index Hk, Index Hv, HeadMap map, bool gated, bool delta) {
  Heads<Scalar> all;
  all.key_of = key_heads_of(Hk, Hv, map);
  for (Index key = 0; key < Hk; ++key) {
    const Sequence<Scalar> x =
        draw(7, 4, 3, static_cast<unsigned>(100 + key), gated, delta).template cast<Scalar>();
    all.q.push_back(x.q);
    all.k.push_back(x.k);
    all.scale = x.scale;
  }
  for (Index h = 0; h < Hv; ++h) {
    const Sequence<Scalar> x = draw(7, 4, 3, static_cast<unsigned>(h), gated, delta).template cast<Scalar>();
    all.v.push_back(x.v);
    all.g.push_back(x.g);
    all.beta.push_back(x.beta);
    all.initial_state.push_back(x.initial_state);
  }
  return all;
}

/// One rank, inside groups, empty ranks, a head each and more ranks than heads.
const std::vector<std::vector<Index>> kCuts = {{0, 6},    {0, 2, 4, 6, 6},       {0, 0, 1, 5, 6, 6},
                                               {0, 3, 6}, {0, 1, 2, 3, 4, 5, 6}, {0, 1, 2, 3, 4, 5, 6, 6, 6}};

template <class System, class Scalar>
void expect_equals_heads_alone() {
  for (const HeadMap map : {HeadMap::interleaved, HeadMap::tiled}) {
    const Heads<Scalar> all = drawn<Scalar>(2, 6, map, System::gated, System::delta);
    for (const std::vector<Index>& cuts : kCuts) {
      const std::vector<Trajectory<Scalar>> many = head_parallel<System>(all, cuts);
      ASSERT_EQ(many.size(), 6U);
      for (std::size_t h = 0; h < 6; ++h) {
        const std::size_t key = map == HeadMap::interleaved ? h / 3 : h % 2;
        const Trajectory<Scalar> alone = recurrent<System>(Sequence<Scalar>{
            all.q[key], all.k[key], all.v[h], all.g[h], all.beta[h], all.scale, all.initial_state[h]});
        EXPECT_TRUE(many[h].o == alone.o) << h << " of " << cuts.size() - 1 << " ranks";
        EXPECT_TRUE(many[h].delta == alone.delta) << h << " of " << cuts.size() - 1 << " ranks";
        EXPECT_TRUE(many[h].state == alone.state) << h << " of " << cuts.size() - 1 << " ranks";
      }
    }
  }
}

TEST(HeadParallel, AnyCutsAreTheHeadsAloneInEveryBit) {
  expect_equals_heads_alone<GatedDeltaRule, double>();
  expect_equals_heads_alone<DeltaRule, double>();
  expect_equals_heads_alone<Retention, double>();
  expect_equals_heads_alone<LinearAttention, double>();
  expect_equals_heads_alone<GatedDeltaRule, Decimal50>();
}

TEST(HeadParallel, MapsOfHeadsByHand) {
  EXPECT_EQ(key_heads_of(2, 6, HeadMap::interleaved), (std::vector<Index>{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(key_heads_of(2, 6, HeadMap::tiled), (std::vector<Index>{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(key_heads_of(3, 3, HeadMap::tiled), key_heads_of(3, 3, HeadMap::interleaved));
  EXPECT_THROW((void)key_heads_of(4, 6, HeadMap::tiled), Error);
}

// A rank has no more than serves its heads, and the table says which: no head map does where a cut lies inside a group.
TEST(HeadParallel, HeadsOfARank) {
  const Heads<double> interleaved =
      heads_of_rank(drawn<double>(2, 6, HeadMap::interleaved, true, true), 2, 4);
  EXPECT_EQ(interleaved.q.size(), 2U);
  EXPECT_EQ(interleaved.key_of, (std::vector<Index>{0, 1}));
  const Heads<double> all = drawn<double>(3, 6, HeadMap::tiled, true, true);
  const Heads<double> tiled = heads_of_rank(all, 2, 4);
  EXPECT_EQ(tiled.key_of, (std::vector<Index>{1, 0}));
  EXPECT_TRUE(tiled.k[0] == all.k[0] && tiled.k[1] == all.k[2]);
  EXPECT_EQ(heads_of_rank(all, 4, 4).q.size(), 0U);
}

// Negative controls: the number on the rank in place of the call's, and the other map, are other outputs.
TEST(HeadParallel, WrongKeyHeadsDiffer) {
  const Heads<double> all = drawn<double>(2, 6, HeadMap::interleaved, true, true);
  const std::vector<Trajectory<double>> right = head_parallel<GatedDeltaRule>(all, {0, 2, 6});
  Heads<double> wrong = all;
  wrong.key_of = {0, 0, 0, 0, 0, 1};  // of the second rank l / 3
  EXPECT_GT(test::relative(head_parallel<GatedDeltaRule>(wrong, {0, 2, 6})[3].o, right[3].o), 1e-3);
  wrong.key_of = key_heads_of(2, 6, HeadMap::tiled);
  EXPECT_GT(test::relative(head_parallel<GatedDeltaRule>(wrong, {0, 2, 6})[1].o, right[1].o), 1e-3);
}

TEST(HeadParallel, ImpossibleCutsAreRefused) {
  const Heads<double> all = drawn<double>(2, 6, HeadMap::interleaved, true, true);
  for (const std::vector<Index>& cuts :
       std::vector<std::vector<Index>>{{}, {0}, {1, 6}, {0, 5}, {0, 4, 3, 6}, {0, 7, 6}}) {
    EXPECT_THROW((void)head_parallel<GatedDeltaRule>(all, cuts), Error);
  }
}

}  // namespace
}  // namespace samestate

#include "oracles/batch_edit.h"

#include <gtest/gtest.h>

#include <vector>

namespace samestate {
namespace {

/// Distinct values everywhere, so that nothing can be mistaken for something else.
Batch distinct_batch(HeadMap map, bool optional_tensors = true) {
  BatchShape s;
  s.B = 3, s.T = 4, s.Hk = 3, s.Hv = 6, s.dk = 2, s.dv = 5, s.head_map = map;
  Batch batch{s, {}, {}, {}, {}, {}, {}};
  float next = 1;
  const auto fill = [&](std::vector<float>& data, std::int64_t size) {
    for (std::int64_t i = 0; i < size; ++i) data.push_back(next++);
  };
  fill(batch.q, s.B * s.T * s.Hk * s.dk);
  fill(batch.k, s.B * s.T * s.Hk * s.dk);
  fill(batch.v, s.B * s.T * s.Hv * s.dv);
  if (!optional_tensors) return batch;
  fill(batch.g, s.B * s.T * s.Hv);
  fill(batch.beta, s.B * s.T * s.Hv);
  fill(batch.initial_state, s.B * s.Hv * s.dk * s.dv);
  return batch;
}

/// x is y, bit for bit.
void expect_same(const Sequence<double>& x, const Sequence<double>& y) {
  EXPECT_TRUE(x.q == y.q);
  EXPECT_TRUE(x.k == y.k);
  EXPECT_TRUE(x.v == y.v);
  EXPECT_TRUE(x.g == y.g);
  EXPECT_TRUE(x.beta == y.beta);
  EXPECT_TRUE(x.initial_state == y.initial_state);
}

class Edit : public ::testing::TestWithParam<HeadMap> {};

TEST_P(Edit, TokensOfEverySequence) {
  for (const bool optional_tensors : {true, false}) {
    const Batch batch = distinct_batch(GetParam(), optional_tensors);
    for (std::int64_t begin = 0; begin <= 4; ++begin) {
      for (std::int64_t end = begin; end <= 4; ++end) {
        const Batch part = tokens_of(batch, begin, end);
        EXPECT_EQ(part.shape.T, end - begin);
        for (std::int64_t n = 0; n < 3; ++n) {
          for (std::int64_t h = 0; h < 6; ++h) {
            const Sequence<double> x = sequence_of(batch, n, h);
            expect_same(sequence_of(part, n, h), x.slice(begin, end, x.initial_state));
          }
        }
      }
    }
  }
}

TEST_P(Edit, RowsInAnotherOrder) {
  const Batch batch = distinct_batch(GetParam());
  const std::vector<std::int64_t> order{2, 0, 1};
  const Batch moved = permuted_rows(batch, order);
  for (std::size_t n = 0; n < 3; ++n) {
    for (std::int64_t h = 0; h < 6; ++h) {
      expect_same(sequence_of(moved, static_cast<std::int64_t>(n), h), sequence_of(batch, order[n], h));
    }
  }
}

TEST_P(Edit, HeadsInAnotherOrderKeepTheirKeyHead) {
  for (const bool optional_tensors : {true, false}) {
    const Batch batch = distinct_batch(GetParam(), optional_tensors);
    std::vector<std::int64_t> value_order;
    const Batch moved = permuted_heads(batch, {1, 2, 0}, value_order);
    EXPECT_EQ(value_order, GetParam() == HeadMap::interleaved
                               ? (std::vector<std::int64_t>{2, 3, 4, 5, 0, 1})
                               : (std::vector<std::int64_t>{1, 2, 0, 4, 5, 3}));
    EXPECT_NE(moved.q, batch.q);
    for (std::int64_t n = 0; n < 3; ++n) {
      for (std::size_t h = 0; h < 6; ++h) {
        expect_same(sequence_of(moved, n, static_cast<std::int64_t>(h)),
                    sequence_of(batch, n, value_order[h]));
      }
    }
  }
}

TEST_P(Edit, PackedRowsWithEmptySequencesAroundThem) {
  for (const bool optional_tensors : {true, false}) {
    const Batch batch = distinct_batch(GetParam(), optional_tensors);
    const Batch packed = packed_of(batch);
    EXPECT_EQ(packed.shape.B, 1);
    EXPECT_EQ(packed.shape.T, 12);
    EXPECT_EQ(packed.shape.offsets, (std::vector<std::int64_t>{0, 0, 4, 4, 8, 8, 12, 12}));
    ASSERT_EQ(packed.shape.sequences(), 7);
    for (std::int64_t h = 0; h < 6; ++h) {
      for (std::int64_t n = 0; n < 3; ++n) {
        expect_same(sequence_of(packed, 2 * n + 1, h), sequence_of(batch, n, h));
      }
      for (std::int64_t n = 0; n < 7; n += 2) {
        EXPECT_EQ(sequence_of(packed, n, h).tokens(), 0);
        EXPECT_TRUE(sequence_of(packed, n, h).initial_state.isZero(0));
      }
    }
  }
}

TEST_P(Edit, SequenceAlone) {
  for (const bool optional_tensors : {true, false}) {
    const Batch batch = distinct_batch(GetParam(), optional_tensors);
    const Batch packed = packed_of(batch);
    for (const Batch* from : {&batch, &packed}) {
      for (std::int64_t n = 0; n < from->shape.sequences(); ++n) {
        const Batch alone = sequence_alone(*from, n);
        EXPECT_EQ(alone.shape.sequences(), 1);
        EXPECT_TRUE(alone.shape.offsets.empty());
        for (std::int64_t h = 0; h < 6; ++h) expect_same(sequence_of(alone, 0, h), sequence_of(*from, n, h));
      }
    }
  }
}

TEST_P(Edit, NoOpChangesOneTokenOfOneRow) {
  const Batch batch = distinct_batch(GetParam());
  Batch changed = batch;
  make_no_op(changed, 1, 2);
  for (std::int64_t n = 0; n < 3; ++n) {
    for (std::int64_t h = 0; h < 6; ++h) {
      Sequence<double> expected = sequence_of(batch, n, h);
      if (n == 1) {
        expected.q.row(2).setZero();
        expected.k.row(2).setZero();
        expected.v.row(2).setZero();
        expected.g(2) = expected.beta(2) = 0;
      }
      expect_same(sequence_of(changed, n, h), expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(HeadMaps, Edit, ::testing::Values(HeadMap::interleaved, HeadMap::tiled),
                         [](const auto& map) {
                           return map.param == HeadMap::interleaved ? "interleaved" : "tiled";
                         });

}  // namespace
}  // namespace samestate

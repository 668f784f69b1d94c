#include "oracles/batch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "reference/error.h"

namespace samestate {
namespace {

/// Every element states its own place: tensor + 0.001 x its number in row-major order.
std::vector<float> numbered(std::int64_t size, float tensor) {
  std::vector<float> data;
  for (std::int64_t i = 0; i < size; ++i) data.push_back(tensor + 0.001F * static_cast<float>(i));
  return data;
}

Batch numbered_batch(const BatchShape& s) {
  return {s,
          numbered(s.B * s.T * s.Hk * s.dk, 1),
          numbered(s.B * s.T * s.Hk * s.dk, 2),
          numbered(s.B * s.T * s.Hv * s.dv, 3),
          numbered(s.B * s.T * s.Hv, -4),
          numbered(s.B * s.T * s.Hv, 5),
          numbered(s.sequences() * s.Hv * s.dk * s.dv, 6)};
}

float at(const std::vector<float>& data, std::int64_t i) { return data[static_cast<std::size_t>(i)]; }

BatchShape dense_shape() {
  BatchShape s;
  s.B = 2, s.T = 4, s.Hk = 3, s.Hv = 6, s.dk = 2, s.dv = 5, s.scale = 0.5;
  return s;
}

TEST(KeyHead, InterleavedAndTiledMapsDiffer) {
  std::vector<std::int64_t> interleaved, tiled;
  for (std::int64_t h = 0; h < 6; ++h) {
    interleaved.push_back(key_head(h, 3, 6, HeadMap::interleaved));
    tiled.push_back(key_head(h, 3, 6, HeadMap::tiled));
  }
  EXPECT_EQ(interleaved, (std::vector<std::int64_t>{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(tiled, (std::vector<std::int64_t>{0, 1, 2, 0, 1, 2}));
  for (std::int64_t h = 0; h < 4; ++h) {
    EXPECT_EQ(key_head(h, 4, 4, HeadMap::interleaved), h);
    EXPECT_EQ(key_head(h, 4, 4, HeadMap::tiled), h);
    EXPECT_EQ(key_head(h, 1, 4, HeadMap::tiled), 0);
  }
}

TEST(KeyHead, ValueHeadsMustBeAMultipleOfKeyHeads) {
  for (const HeadMap map : {HeadMap::interleaved, HeadMap::tiled}) {
    EXPECT_THROW(static_cast<void>(key_head(0, 4, 6, map)), Error);
    EXPECT_THROW(static_cast<void>(key_head(0, 4, 2, map)), Error);
    EXPECT_THROW(static_cast<void>(key_head(0, 0, 4, map)), Error);
    EXPECT_THROW(static_cast<void>(key_head(0, 1, 0, map)), Error);
  }
}

TEST(SequenceOf, TakesTheElementsOfItsRowAndHead) {
  for (const HeadMap map : {HeadMap::interleaved, HeadMap::tiled}) {
    BatchShape s = dense_shape();
    s.head_map = map;
    const Batch batch = numbered_batch(s);
    for (std::int64_t b = 0; b < s.B; ++b) {
      for (std::int64_t h = 0; h < s.Hv; ++h) {
        const Sequence<double> x = sequence_of(batch, b, h);
        const std::int64_t hk = map == HeadMap::interleaved ? h / 2 : h % 3;
        ASSERT_EQ(x.tokens(), s.T);
        EXPECT_EQ(x.scale, 0.5);
        for (std::int64_t t = 0; t < s.T; ++t) {
          const std::int64_t token = b * s.T + t;
          for (std::int64_t c = 0; c < s.dk; ++c) {
            EXPECT_EQ(x.q(t, c), at(batch.q, (token * s.Hk + hk) * s.dk + c));
            EXPECT_EQ(x.k(t, c), at(batch.k, (token * s.Hk + hk) * s.dk + c));
          }
          for (std::int64_t c = 0; c < s.dv; ++c) {
            EXPECT_EQ(x.v(t, c), at(batch.v, (token * s.Hv + h) * s.dv + c));
          }
          EXPECT_EQ(x.g(t), at(batch.g, token * s.Hv + h));
          EXPECT_EQ(x.beta(t), at(batch.beta, token * s.Hv + h));
        }
        for (std::int64_t r = 0; r < s.dk; ++r) {
          for (std::int64_t c = 0; c < s.dv; ++c) {
            EXPECT_EQ(x.initial_state(r, c), at(batch.initial_state, ((b * s.Hv + h) * s.dk + r) * s.dv + c));
          }
        }
      }
    }
  }
}

TEST(SequenceOf, PackedSequencesFollowTheOffsets) {
  BatchShape s = dense_shape();
  s.B = 1, s.T = 7, s.offsets = {0, 3, 3, 7};
  EXPECT_EQ(s.sequences(), 3);
  const Batch batch = numbered_batch(s);
  for (std::int64_t n = 0; n < 3; ++n) {
    const std::int64_t begin = s.offsets[static_cast<std::size_t>(n)];
    const Sequence<double> x = sequence_of(batch, n, 4);
    ASSERT_EQ(x.tokens(), s.end(n) - begin);
    for (std::int64_t t = 0; t < x.tokens(); ++t) {
      EXPECT_EQ(x.v(t, 1), at(batch.v, ((begin + t) * s.Hv + 4) * s.dv + 1));
      EXPECT_EQ(x.k(t, 1), at(batch.k, ((begin + t) * s.Hk + 2) * s.dk + 1));
      EXPECT_EQ(x.g(t), at(batch.g, (begin + t) * s.Hv + 4));
    }
    EXPECT_EQ(x.initial_state(1, 2), at(batch.initial_state, ((n * s.Hv + 4) * s.dk + 1) * s.dv + 2));
  }
}

TEST(SequenceOf, AbsentTensorsHaveTheirNeutralValues) {
  Batch batch = numbered_batch(dense_shape());
  batch.g.clear();
  batch.beta.clear();
  batch.initial_state.clear();
  const Sequence<double> x = sequence_of(batch, 1, 5);
  EXPECT_TRUE(x.g.isZero(0));
  EXPECT_TRUE(x.beta.isOnes(0));
  EXPECT_EQ(x.initial_state.rows(), 2);
  EXPECT_EQ(x.initial_state.cols(), 5);
  EXPECT_TRUE(x.initial_state.isZero(0));
}

TEST(SequenceOf, NormalisesQueriesAndKeysInFloat64) {
  BatchShape s = dense_shape();
  const Sequence<double> plain = sequence_of(numbered_batch(s), 0, 2);
  s.l2norm = true;
  const Sequence<double> x = sequence_of(numbered_batch(s), 0, 2);
  for (Index t = 0; t < x.tokens(); ++t) {
    for (const auto& [found, raw] : {std::pair{&x.q, &plain.q}, {&x.k, &plain.k}}) {
      const double factor = 1 / std::sqrt(raw->row(t).squaredNorm() + 1e-6);
      EXPECT_LT((found->row(t) - factor * raw->row(t)).norm(), 1e-15);
    }
  }
  EXPECT_TRUE(x.v == plain.v);
}

TEST(RowsOf, OutputsAndStatesOfOneHead) {
  for (const bool packed : {false, true}) {
    BatchShape s = dense_shape();
    if (packed) s.B = 1, s.T = 7, s.offsets = {0, 3, 3, 7};
    const Batch batch = numbered_batch(s);
    const Outputs outputs{numbered(s.B * s.T * s.Hv * s.dv, 7),
                          numbered(s.sequences() * s.Hv * s.dk * s.dv, 8)};
    for (std::int64_t n = 0; n < s.sequences(); ++n) {
      const Matrix<double> o = rows_of(batch, outputs, n, 4);
      const std::int64_t begin = packed ? s.begin(n) : n * s.T;
      ASSERT_EQ(o.rows(), s.end(n) - s.begin(n));
      for (Index t = 0; t < o.rows(); ++t) {
        for (Index c = 0; c < o.cols(); ++c) {
          EXPECT_EQ(o(t, c), at(outputs.o, ((begin + t) * s.Hv + 4) * s.dv + c));
        }
      }
      EXPECT_EQ(state_of(batch, outputs, n, 4)(1, 3),
                at(outputs.final_state, ((n * s.Hv + 4) * s.dk + 1) * s.dv + 3));
    }
  }
}

TEST(RequireFinite, NamesTensorElementAndValue) {
  const Batch good = numbered_batch(dense_shape());
  EXPECT_NO_THROW(require_finite(good));
  struct Row {
    const char* name;
    std::vector<float> Batch::*tensor;
  };
  for (const Row& row : {Row{"q", &Batch::q},
                         {"k", &Batch::k},
                         {"v", &Batch::v},
                         {"g", &Batch::g},
                         {"beta", &Batch::beta},
                         {"initial_state", &Batch::initial_state}}) {
    for (const float planted :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity()}) {
      Batch batch = good;
      (batch.*row.tensor)[7] = planted;
      try {
        require_finite(batch);
        FAIL() << row.name << " " << planted;
      } catch (const Error& error) {
        const std::string start = std::string(row.name) + "[7] is " + std::to_string(planted);
        EXPECT_EQ(std::string(error.what()).substr(0, start.size()), start);
      }
    }
  }
}

}  // namespace
}  // namespace samestate

#include "reference/backward/chunk.h"

#include <gtest/gtest.h>

#include <limits>

#include "reference/backward/recurrence.h"
#include "reference/delta_rule.h"
#include "reference/gated_delta_rule.h"
#include "reference/linear_attention.h"
#include "reference/retention.h"
#include "tests/reference/backward/head_tensors.h"

namespace samestate {

/// A scalar that loses what passes one rounding point: results that are stored there are 0, and so are the
/// operands of products there. A mark that stands at no term would lose nothing.
using Losing = DualNumber<long double>;

template <>
struct RoundingPoint<Losing> {
  static constexpr bool rounds = true;
  static inline const PointRow* lost = nullptr;
  static bool rounds_at(Point point) { return &point.row() == lost; }
  static bool rounds_operands(Point point) { return &point.row() == lost; }
  static Losing stored(const Losing&) { return Losing(0.0L); }
  static Losing operand(const Losing&) { return Losing(0.0L); }
  static Losing shift(const Losing& x) { return x; }
};

namespace {

using test::draw;
using test::Tensors;

template <class System>
class ChunkedBackward : public testing::Test {
 protected:
  static Sequence<double> sequence(Index T = 11, unsigned seed = 21) {
    return draw(T, 5, 3, seed, System::gated, System::delta);
  }
  static HeadCotangents<double> cotangents(Index T) { return {test::normal(T, 3, 5), test::normal(5, 3, 6)}; }

  /// The largest difference between recurrent and chunked in any gradient, over its largest element.
  template <class Scalar>
  static double distance(Index T, Index chunk) {
    const Sequence<Scalar> x = sequence(T).template cast<Scalar>();
    const HeadCotangents<Scalar> d = cotangents(T).template cast<Scalar>();
    const auto whole = test::gradient_tensors<System>(recurrent_backward<System>(x, d));
    const auto chunks = test::gradient_tensors<System>(chunked_backward<System>(x, d, chunk));
    return test::worst(test::cast<Decimal100>(chunks), test::cast<Decimal100>(whole));
  }
};
using ChunkSystems = testing::Types<GatedDeltaRule, DeltaRule, Retention, LinearAttention>;
TYPED_TEST_SUITE(ChunkedBackward, ChunkSystems);

TYPED_TEST(ChunkedBackward, IsTheDerivativeOfTheForwardPass) {
  const test::GradientCheck check(
      test::head_tensors<TypeParam>(this->sequence()),
      test::head_forward<TypeParam>([](const auto& x) { return chunked<TypeParam>(x, 4); }));
  test::expect_gradients(check, test::head_backward<TypeParam>([](const auto& x, const auto& d) {
                           return chunked_backward<TypeParam>(x, d, 4);
                         }));
}

TYPED_TEST(ChunkedBackward, IsTheRecurrenceForEveryChunk) {
  for (const Index chunk : {1, 4, 11, 64}) {
    EXPECT_LE(this->template distance<double>(11, chunk), 1e-15) << chunk;
    EXPECT_LE(this->template distance<Decimal100>(11, chunk), 1e-90) << chunk;
    EXPECT_LE(this->template distance<Decimal100>(70, chunk), 1e-90) << chunk;
  }
}

// Every mark of the table stands at a term of some gradient: without it the gradients are others.
TYPED_TEST(ChunkedBackward, WhatPassesAPointIsMissed) {
  constexpr bool gated = TypeParam::gated;
  constexpr bool delta = TypeParam::delta;
  const std::set<std::string_view> of_delta = {"key_products",
                                               "T",
                                               "beta_v",
                                               "beta_k",
                                               "U",
                                               "W",
                                               "read_by_W",
                                               "dh_of_W",
                                               "dw",
                                               "dT",
                                               "dT_T",
                                               "dA",
                                               "dv_of_T",
                                               "dk_of_T",
                                               "dk_of_A",
                                               "dk_of_A_transposed",
                                               "beta_key",
                                               "dk_correction",
                                               "dbeta"};
  const std::set<std::string_view> of_decay = {"dG_last", "dG_of_A", "dG", "dg"};
  const auto x = this->sequence().template cast<Losing>();
  const auto d = this->cotangents(11).template cast<Losing>();
  const auto values = [](const Tensors<Losing>& from) {
    Tensors<Decimal100> out;
    for (const Matrix<Losing>& m : from)
      out.push_back(m.unaryExpr([](const Losing& e) { return e.value(); }).template cast<Decimal100>());
    return out;
  };
  const auto gradients = [&](const PointRow* lost) {
    RoundingPoint<Losing>::lost = lost;
    const auto out = values(test::gradient_tensors<TypeParam>(chunked_backward<TypeParam>(x, d, 4)));
    RoundingPoint<Losing>::lost = nullptr;
    return out;
  };
  const Tensors<Decimal100> right = gradients(nullptr);
  int met = 0;
  for (const PointRow& row : points::chunk_backward.rows) {
    const bool has = (delta || !of_delta.contains(row.name)) && (gated || !of_decay.contains(row.name)) &&
                     (row.name != "dG_of_A" || (gated && delta));
    const double distance = test::worst(gradients(&row), right);
    if (has) {
      EXPECT_GT(distance, 1e-2) << row.name;
      ++met;
    } else {
      EXPECT_EQ(distance, 0.0) << row.name << " is no point of this system";
    }
  }
  EXPECT_GE(met, delta ? 35 : 16);
}

TYPED_TEST(ChunkedBackward, PartsOfDkMakeTheWhole) {
  const Sequence<double> x = this->sequence();
  const HeadCotangents<double> d = this->cotangents(11);
  const HeadGradients<double> parts = chunked_backward_parts<TypeParam>(x, d, 4);
  EXPECT_EQ(parts.k_correction.size() != 0, TypeParam::delta);
  EXPECT_EQ(whole_key_gradient(parts.k, parts.k_correction), chunked_backward<TypeParam>(x, d, 4).k);
}

TYPED_TEST(ChunkedBackward, NoTokensPassTheCotangentOfTheState) {
  const HeadCotangents<double> d = this->cotangents(0);
  EXPECT_EQ(chunked_backward<TypeParam>(this->sequence(0), d, 4).initial_state, d.state);
}

TYPED_TEST(ChunkedBackward, IntervalsEncloseTheFiftyDigitValue) {
  const Sequence<double> x = this->sequence(9);
  const HeadCotangents<double> d = this->cotangents(9);
  const auto enclosure =
      chunked_backward<TypeParam>(x.template cast<Interval>(), d.template cast<Interval>(), 4);
  const auto digits =
      chunked_backward<TypeParam>(x.template cast<Decimal100>(), d.template cast<Decimal100>(), 4);
  for (Index i = 0; i < enclosure.k.size(); ++i) {
    EXPECT_LE(Decimal100(lower(enclosure.k.data()[i])), digits.k.data()[i]);
    EXPECT_GE(Decimal100(upper(enclosure.k.data()[i])), digits.k.data()[i]);
  }
}

// A reset in the middle of a chunk: no 0 * inf, and nothing passes back but rounding of dG's sum.
TEST(ChunkedBackward, SurvivesAReset) {
  Sequence<double> x = draw(12, 4, 3);
  x.g(6) = -std::numeric_limits<double>::infinity();
  HeadCotangents<double> d{test::normal(12, 3, 5), test::normal(4, 3, 6)};
  const auto whole = test::gradient_tensors<GatedDeltaRule>(recurrent_backward<GatedDeltaRule>(x, d));
  for (const Index chunk : {1, 4, 5, 12}) {
    const auto chunks = test::gradient_tensors<GatedDeltaRule>(chunked_backward<GatedDeltaRule>(x, d, chunk));
    EXPECT_LE(test::worst(test::cast<Decimal100>(chunks), test::cast<Decimal100>(whole)), 2e-15) << chunk;
  }
  d.o.topRows(6).setZero();
  EXPECT_EQ(chunked_backward<GatedDeltaRule>(x, d, 4).initial_state, Matrix<double>::Zero(4, 3));
  EXPECT_EQ(chunked_backward<GatedDeltaRule>(x, d, 4).k.topRows(6), Matrix<double>::Zero(6, 4));
}

TEST(ChunkedBackward, RefusesAnEmptyChunkAndOtherShapes) {
  const Sequence<double> x = draw(4, 3, 2);
  EXPECT_THROW((void)chunked_backward<GatedDeltaRule>(x, {Matrix<double>::Zero(4, 2), {}}, 0), Error);
  EXPECT_THROW((void)chunked_backward<GatedDeltaRule>(x, {Matrix<double>::Zero(4, 3), {}}, 2), Error);
}

}  // namespace
}  // namespace samestate

#include "reference/recurrence.h"

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
using test::relative;

/// Residuals in float64 and in 50 digits: a relation that holds at 1e-15 in float64 and not at 1e-47 in 50
/// digits is a coincidence and not a law.
template <class Scalar>
constexpr double kResidual = 1e-47;
template <>
constexpr double kResidual<double> = 5e-14;

template <class System, class Scalar>
void expect_forms_agree(const Sequence<double>& input) {
  const Sequence<Scalar> x = input.cast<Scalar>();
  const Trajectory<Scalar> whole = recurrent<System>(x);
  const Index T = x.tokens();
  for (Index chunk : {Index{1}, Index{3}, Index{8}, T, T + 1}) {
    const Trajectory<Scalar> chunks = chunked<System>(x, chunk);
    EXPECT_LE(relative(chunks.o, whole.o), kResidual<Scalar>) << "chunk " << chunk;
    EXPECT_LE(relative(chunks.delta, whole.delta), kResidual<Scalar>) << "chunk " << chunk;
    EXPECT_LE(relative(chunks.state, whole.state), kResidual<Scalar>) << "chunk " << chunk;
  }
  const Trajectory<Scalar> tokens = decode<System>(x);
  EXPECT_EQ(tokens.o, whole.o);
  EXPECT_EQ(tokens.state, whole.state);
  for (Index cut = 0; cut <= T; ++cut) {
    const Trajectory<Scalar> parts =
        resumed(x, {cut}, [](const Sequence<Scalar>& part) { return chunked<System>(part, 4); });
    EXPECT_LE(relative(parts.o, whole.o), kResidual<Scalar>) << "cut " << cut;
    EXPECT_LE(relative(parts.state, whole.state), kResidual<Scalar>) << "cut " << cut;
  }
}

template <class System>
class Forms : public testing::Test {};
using Systems = testing::Types<GatedDeltaRule, DeltaRule, Retention, LinearAttention>;
TYPED_TEST_SUITE(Forms, Systems);

TYPED_TEST(Forms, AgreeInFloat64) {
  expect_forms_agree<TypeParam, double>(draw(37, 7, 45, 1, TypeParam::gated, TypeParam::delta));
  expect_forms_agree<TypeParam, double>(draw(1, 1, 1, 2, TypeParam::gated, TypeParam::delta));
}

TYPED_TEST(Forms, AgreeInFiftyDigits) {
  expect_forms_agree<TypeParam, Decimal50>(draw(17, 4, 5, 3, TypeParam::gated, TypeParam::delta));
}

TYPED_TEST(Forms, NoTokensKeepTheState) {
  const Sequence<double> x = draw(0, 3, 2, 4, TypeParam::gated, TypeParam::delta);
  EXPECT_EQ(recurrent<TypeParam>(x).state, x.initial_state);
  EXPECT_EQ(chunked<TypeParam>(x, 4).state, x.initial_state);
  EXPECT_EQ(recurrent<TypeParam>(x).o.rows(), 0);
}

TYPED_TEST(Forms, PackedSequencesAreThoseAlone) {
  const Sequence<double> x = draw(12, 3, 4, 5, TypeParam::gated, TypeParam::delta);
  const std::vector<Index> offsets{0, 0, 5, 5, 12};
  std::vector<Matrix<double>> states;
  for (int n = 0; n < 4; ++n) states.push_back((n + 1) * x.initial_state);
  const auto run = [](const Sequence<double>& part) { return chunked<TypeParam>(part, 4); };
  const auto parts = packed(x, offsets, states, run);
  ASSERT_EQ(parts.size(), 4U);
  EXPECT_EQ(parts[0].state, states[0]);
  EXPECT_EQ(parts[2].state, states[2]);
  EXPECT_EQ(parts[3].o, run(x.slice(5, 12, states[3])).o);
  EXPECT_THROW((void)packed(x, {0, 5, 4, 12}, {states[0], states[1], states[2]}, run), Error);
  EXPECT_THROW((void)packed(x, {0, 5, 11}, {states[0], states[1]}, run), Error);
}

TYPED_TEST(Forms, IntervalsEncloseTheFiftyDigitValue) {
  const Sequence<double> x = draw(9, 3, 4, 6, TypeParam::gated, TypeParam::delta);
  const auto enclosure = recurrent<TypeParam>(x.template cast<Interval>());
  const auto digits = recurrent<TypeParam>(x.template cast<Decimal100>());
  for (Index i = 0; i < enclosure.o.size(); ++i) {
    const Decimal100 value = digits.o.data()[i];
    EXPECT_LE(Decimal100(lower(enclosure.o.data()[i])), value);
    EXPECT_GE(Decimal100(upper(enclosure.o.data()[i])), value);
    EXPECT_LT(static_cast<double>(upper(enclosure.o.data()[i]) - lower(enclosure.o.data()[i])), 1e-40);
  }
}

TEST(Chunked, RefusesAnEmptyChunk) { EXPECT_THROW((void)chunked<Retention>(draw(4, 2, 2), 0), Error); }

TEST(Resumed, RefusesCutsOutOfOrder) {
  const auto run = [](const Sequence<double>& part) { return recurrent<DeltaRule>(part); };
  EXPECT_THROW((void)resumed(draw(4, 2, 2), {3, 2}, run), Error);
  EXPECT_THROW((void)resumed(draw(4, 2, 2), {5}, run), Error);
}

// A hard reset in the middle of a chunk: differences of cumulative sums would have no digit left (BUGS M09).
TEST(Chunked, SurvivesAHardReset) {
  Sequence<double> x = draw(12, 4, 3);
  x.g(5) = -1e38;
  EXPECT_LE(relative(chunked<GatedDeltaRule>(x, 12).o, recurrent<GatedDeltaRule>(x).o), 5e-14);
  EXPECT_LE(relative(chunked<Retention>(x, 12).o, recurrent<Retention>(x).o), 5e-14);
}

}  // namespace
}  // namespace samestate

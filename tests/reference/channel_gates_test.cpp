#include "reference/channel_gates.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "reference/retention.h"
#include "reference/scalars.h"

namespace samestate {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// How gates are drawn.
enum class Gate { normal, safe, zero, spread };

ChannelSequence<double> drawn(std::uint32_t seed, Index T, Index dk, Index dv, Gate gate, bool pair = false) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  const auto matrix = [&](Index rows, Index columns) {
    Matrix<double> m(rows, columns);
    for (Index i = 0; i < m.size(); ++i) m.data()[i] = normal(random);
    return m;
  };
  const auto strength = [&](Index columns) {
    Matrix<double> m(T, columns);
    for (Index i = 0; i < m.size(); ++i) m.data()[i] = uniform(random);
    return m;
  };
  ChannelSequence<double> x{matrix(T, dk), matrix(T, dk), matrix(T, dv), matrix(T, dk), strength(pair ? dk : 1), {}, 0.25,
                            matrix(dk, dv)};
  x.write = pair ? strength(dv) : x.erase;
  for (Index t = 0; t < T; ++t) x.k.row(t).normalize();
  for (Index i = 0; i < x.g.size(); ++i) {
    double& g = x.g.data()[i];
    g = gate == Gate::normal ? -std::exp(g - 1.0)
        : gate == Gate::safe ? -5.0 * uniform(random)
        : gate == Gate::zero ? 0.0
                             : -std::pow(10.0, -4.0 + 7.0 * static_cast<double>(i % dk) / static_cast<double>(dk));
  }
  return x;
}

double relative(const Matrix<double>& x, const Matrix<double>& expected) {
  if (expected.size() == 0) return 0.0;
  return (x - expected).cwiseAbs().maxCoeff<Eigen::PropagateNaN>() / std::max(expected.cwiseAbs().maxCoeff(), 1e-300);
}

/// All forms give what `expected` has.
template <class Rule>
void expect_forms(const ChannelSequence<double>& x, const Trajectory<double>& expected, double limit) {
  for (const Index chunk : {1, 4, 16, 64}) {
    const Trajectory<double> mine = channel_chunked<Rule>(x, chunk);
    EXPECT_LE(relative(mine.o, expected.o), limit) << chunk;
    EXPECT_LE(relative(mine.delta, expected.delta), limit) << chunk;
    EXPECT_LE(relative(mine.state, expected.state), limit) << chunk;
  }
  for (const Trajectory<double>& mine : {channel_scan<Rule>(x), channel_column<Rule>(x)}) {
    EXPECT_LE(relative(mine.o, expected.o), limit);
    EXPECT_LE(relative(mine.state, expected.state), limit);
  }
  const Index cut = x.tokens() / 3;
  const Trajectory<double> first = channel_recurrent<Rule>(x.slice(0, cut, x.initial_state));
  const Trajectory<double> rest = channel_chunked<Rule>(x.slice(cut, x.tokens(), first.state), 16);
  EXPECT_LE(relative(rest.state, expected.state), limit) << "resumed";
  EXPECT_LE(relative(rest.o, expected.o.bottomRows(x.tokens() - cut)), limit) << "resumed";
}

// One token, two channels: S = (4, 6) decays to (2, 1.5), k = (1, 2) reads 5, beta = 1/2 writes (9 - 5)/2 = 2, and S becomes
// (4, 5.5), of which q = (1, 1) with scale 2 reads 19.
TEST(ChannelGates, OneTokenByHand) {
  const auto row = [](double a, double b) { return Matrix<double>((Matrix<double>(1, 2) << a, b).finished()); };
  const auto one = [](double a) { return Matrix<double>(Matrix<double>::Constant(1, 1, a)); };
  ChannelSequence<double> x{row(1, 1), row(1, 2), one(9), row(std::log(0.5), std::log(0.25)), one(0.5), one(0.5), 2.0,
                            row(4, 6).transpose()};
  const Trajectory<double> out = channel_recurrent<ChannelDelta>(x);
  EXPECT_NEAR(out.delta(0, 0), 2.0, 1e-15);
  EXPECT_NEAR(out.state(0, 0), 4.0, 1e-15);
  EXPECT_NEAR(out.state(1, 0), 5.5, 1e-15);
  EXPECT_NEAR(out.o(0, 0), 19.0, 1e-14);
  // b = (1/2, 0) reads 1 and w = 1 writes 8: S = (2 + 8, 1.5 + 16).
  x.erase = row(0.5, 0.0), x.write = one(1.0);
  const Trajectory<double> pair = channel_recurrent<ChannelDelta>(x);
  EXPECT_NEAR(pair.delta(0, 0), 8.0, 1e-15);
  EXPECT_NEAR(pair.state(1, 0), 17.5, 1e-14);
  // Nothing erased: S = (2 + 9, 1.5 + 18).
  EXPECT_NEAR(channel_recurrent<ChannelLinear>(x).state(1, 0), 19.5, 1e-14);
}

TEST(ChannelGates, AllFormsAgree) {
  std::uint32_t seed = 0;
  for (const Gate gate : {Gate::normal, Gate::safe, Gate::zero, Gate::spread}) {
    for (const Index T : {1, 15, 17, 70}) {
      for (const bool pair : {false, true}) {
        const ChannelSequence<double> x = drawn(++seed, T, 11, 7, gate, pair);
        expect_forms<ChannelDelta>(x, channel_recurrent<ChannelDelta>(x), 1e-14);
        expect_forms<ChannelLinear>(x, channel_recurrent<ChannelLinear>(x), 1e-14);
      }
    }
  }
}

TEST(ChannelGates, FiftyDigitsAgree) {
  using Digits = Decimal50;
  const ChannelSequence<Digits> x = drawn(5, 21, 6, 4, Gate::normal, true).cast<Digits>();
  const Trajectory<Digits> a = channel_recurrent<ChannelDelta>(x), b = channel_chunked<ChannelDelta>(x, 8);
  EXPECT_LT(static_cast<double>(Matrix<Digits>((a.o - b.o).cwiseAbs()).maxCoeff()), 1e-45);
  EXPECT_LT(static_cast<double>(Matrix<Digits>((a.state - b.state).cwiseAbs()).maxCoeff()), 1e-45);
}

// Channels with one decay are the scalar rule, and a rule without e is retention, bit for bit.
TEST(ChannelGates, EqualChannelsAreTheScalarRules) {
  for (const Index T : {1, 40}) {
    ChannelSequence<double> x = drawn(7, T, 9, 37, Gate::normal);
    const Sequence<double> scalar{x.q, x.k, x.v, x.g.col(0), x.erase.col(0), x.scale, x.initial_state};
    const Trajectory<double> rule = recurrent<GatedDeltaRule>(scalar), retention = recurrent<Retention>(scalar);
    for (const bool wide : {false, true}) {
      ChannelSequence<double> y = x;
      y.g = wide ? Matrix<double>(x.g.col(0).replicate(1, 9)) : Matrix<double>(x.g.col(0));
      EXPECT_TRUE(channel_recurrent<ChannelDelta>(y).o == rule.o) << wide;
      EXPECT_TRUE(channel_recurrent<ChannelDelta>(y).state == rule.state) << wide;
      EXPECT_TRUE(channel_recurrent<ChannelLinear>(y).o == retention.o) << wide;
      EXPECT_TRUE(channel_recurrent<ChannelLinear>(y).state == retention.state) << wide;
    }
    x.g.col(1) *= 1.25;
    EXPECT_FALSE(channel_recurrent<ChannelDelta>(x).state == rule.state) << "another channel's gate is read";
  }
}

// b = w = beta is Kimi Delta Attention.
TEST(ChannelGates, OneStrengthForBothGates) {
  const ChannelSequence<double> x = drawn(9, 30, 8, 5, Gate::normal);
  ChannelSequence<double> y = x;
  y.erase = x.erase.replicate(1, 8), y.write = x.write.replicate(1, 5);
  EXPECT_LE(relative(channel_recurrent<ChannelDelta>(y).o, channel_recurrent<ChannelDelta>(x).o), 1e-14);
}

// A reset of some channels: their rows of the state are forgotten, the others are not, and no form has a NaN.
TEST(ChannelGates, SomeChannelsAreReset) {
  ChannelSequence<double> x = drawn(11, 50, 6, 4, Gate::normal);
  x.g(7, 2) = x.g(7, 5) = x.g(33, 0) = -kInfinite;
  const Trajectory<double> expected = channel_recurrent<ChannelDelta>(x);
  ASSERT_TRUE(expected.o.allFinite());
  expect_forms<ChannelDelta>(x, expected, 1e-14);
  ChannelSequence<double> other = x.slice(7, 8, x.initial_state), changed = other;
  changed.initial_state.row(2) *= -3.0;
  EXPECT_TRUE(channel_recurrent<ChannelDelta>(changed).state == channel_recurrent<ChannelDelta>(other).state);
  changed.initial_state.row(1) *= -3.0;
  EXPECT_FALSE(channel_recurrent<ChannelDelta>(changed).state == channel_recurrent<ChannelDelta>(other).state);
}

TEST(ChannelGates, ShapesThatDisagreeAreErrors) {
  const ChannelSequence<double> x = drawn(1, 5, 4, 3, Gate::normal);
  ChannelSequence<double> y = x;
  y.g = x.g.leftCols(2);
  EXPECT_THROW((void)channel_recurrent<ChannelDelta>(y), Error);
  y = x, y.erase = x.erase.topRows(4);
  EXPECT_THROW((void)channel_chunked<ChannelDelta>(y, 2), Error);
  EXPECT_NO_THROW((void)channel_chunked<ChannelLinear>(y, 2));
  y = x, y.v = x.v.leftCols(2);
  EXPECT_THROW((void)channel_scan<ChannelDelta>(y), Error);
  EXPECT_THROW((void)channel_chunked<ChannelDelta>(x, 0), Error);
}

}  // namespace
}  // namespace samestate

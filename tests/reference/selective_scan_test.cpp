#include "reference/selective_scan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reference/scalars.h"
#include "reference/selective_scan_parallel.h"

namespace samestate {
namespace {

constexpr Discretisation kEuler = Discretisation::euler;
constexpr Discretisation kHold = Discretisation::zero_order_hold;

/// One channel and one state: Delta = 1, A = -1, B = C = 1, no skip, no gate.
SelectiveScan<double> scalar_case(Index T) {
  SelectiveScan<double> x;
  x.u = x.delta = x.B = x.C = Matrix<double>::Ones(T, 1);
  x.A = Matrix<double>::Constant(1, 1, -1.0);
  x.initial_state = Matrix<double>::Zero(1, 1);
  return x;
}

/// Two channels, two states, no decay: all values are integers.
SelectiveScan<double> integer_case() {
  SelectiveScan<double> x;
  x.u.resize(3, 2);
  x.u << 1, 2, 3, 0, -1, 4;
  x.delta = Matrix<double>::Ones(3, 2);
  x.A.resize(2, 2);
  x.A << 0, 0, 0, 0;
  x.B.resize(3, 2);
  x.B << 1, 0, 2, 1, 0, 1;
  x.C.resize(3, 2);
  x.C << 1, 1, 1, -1, 2, 1;
  x.skip.resize(2);
  x.skip << 10, 100;
  x.initial_state = Matrix<double>::Zero(2, 2);
  x.initial_state(1, 0) = 8;
  return x;
}

// E-13: from h = 0 the first state is B-bar u, 1 for Euler and 1 - 1/e for the hold.
TEST(SelectiveScan, EulerAndHoldDifferAtFirstOrder) {
  const SelectiveScan<double> x = scalar_case(2);
  const auto euler = selective_scan_recurrent(x, kEuler);
  const auto hold = selective_scan_recurrent(x, kHold);
  EXPECT_EQ(euler.y(0, 0), 1.0);
  EXPECT_NEAR(hold.y(0, 0), 0.632120558828557678, 1e-15);
  EXPECT_NEAR(euler.y(1, 0), 1.0 + std::exp(-1.0), 1e-15);
  EXPECT_NEAR(hold.y(1, 0), 1.0 - std::exp(-2.0), 1e-15);  // the solution of h' = -h + 1 at t = 2
}

TEST(SelectiveScan, ValuesByHand) {
  const auto out = selective_scan_recurrent(integer_case(), kEuler);
  Matrix<double> y(3, 2), state(2, 2);
  // channel 0: h = (1, 0), (7, 3), (7, 2); channel 1: h = (10, 0), (10, 0), (10, 4).
  y << 1 + 10, 10 + 200, 4 + 30, 10 + 0, 16 - 10, 24 + 400;
  state << 7, 2, 10, 4;
  EXPECT_EQ(out.y, y);
  EXPECT_EQ(out.out, y);
  EXPECT_EQ(out.state, state);
  EXPECT_EQ(selective_scan_recurrent(integer_case(), kHold).y, y);  // A = 0: B-bar is Delta B
  EXPECT_EQ(selective_scan_hillis_steele(integer_case(), kHold).y, y);
  EXPECT_EQ(selective_scan_blelloch(integer_case(), kHold).y, y);
  EXPECT_EQ(selective_scan_chunked(integer_case(), kHold, 2).y, y);
}

// SSM-9 as printed gives h = 1, -1, 3, -5, 11 .. for A = -2 and u = B = 1.
TEST(SelectiveScan, TheStateNeitherChangesSignNorDiverges) {
  SelectiveScan<double> x = scalar_case(64);
  x.A(0, 0) = -2.0;
  const auto out = selective_scan_recurrent(x, kHold);
  for (Index t = 1; t < 64; ++t) EXPECT_GE(out.y(t, 0), out.y(t - 1, 0));
  EXPECT_NEAR(out.state(0, 0), 0.5, 1e-15);
}

TEST(SelectiveScan, SkipComesBeforeTheGate) {
  SelectiveScan<double> x = scalar_case(1);
  x.skip = Vector<double>::Constant(1, 2.0);
  x.z = Matrix<double>::Constant(1, 1, -3.0);
  const auto out = selective_scan_recurrent(x, kEuler);
  EXPECT_EQ(out.y(0, 0), 3.0);
  EXPECT_NEAR(out.out(0, 0), 3.0 * -3.0 / (1.0 + std::exp(3.0)), 1e-15);
  x.z(0, 0) = 0.0;
  EXPECT_EQ(selective_scan_recurrent(x, kEuler).out(0, 0), 0.0);
}

TEST(SelectiveScan, DecayRatesAreThoseOfTheDocument) {
  Matrix<double> A_log(1, 16);
  for (Index n = 0; n < 16; ++n) A_log(0, n) = std::log(static_cast<double>(n + 1));
  const Matrix<double> A = decay_rates(A_log);
  for (Index n = 0; n < 16; ++n) EXPECT_NEAR(A(0, n), -static_cast<double>(n + 1), 1e-14);  // SSM-7
}

TEST(SelectiveScan, TimeStepsAreSoftplusOfTheBiasedProjection) {
  Matrix<double> dt(1, 3);
  dt << 0, 1000, -1000;
  const Matrix<double> delta = time_steps<double>(dt, Vector<double>::Zero(3));
  EXPECT_NEAR(delta(0, 0), std::log(2.0), 1e-16);
  EXPECT_EQ(delta(0, 1), 1000.0);
  EXPECT_EQ(delta(0, 2), 0.0);
  EXPECT_EQ(
      time_steps<double>(Matrix<double>::Constant(1, 1, -5.0), Vector<double>::Constant(1, 1005.0))(0, 0),
      1000.0);
  EXPECT_THROW((void)time_steps<double>(dt, Vector<double>::Zero(2)), Error);
}

// Hazard 8.3: the hold is bounded by -1/A and tends to Delta; Euler is unbounded.
TEST(InputFactor, LimitsOfTheHold) {
  EXPECT_EQ(input_factor(0.75, 0.0, kHold), 0.75);
  EXPECT_EQ(input_factor(0.0, -4.0, kHold), 0.0);
  EXPECT_EQ(input_factor(1e300, -4.0, kHold), 0.25);
  EXPECT_EQ(input_factor(1e300, -1e10, kHold), 1e-10);  // Delta A overflows
  EXPECT_EQ(input_factor(1e-300, -1e-300, kHold), 1e-300);
  EXPECT_EQ(input_factor(1e300, -4.0, kEuler), 1e300);
  // Delta A is denormal and has two bits left: the factor is still Delta to the last one.
  EXPECT_EQ(input_factor(0.3, -3e-323, kHold), 0.3);
  // e^x - 1 taken with exp is 11 % off here.
  EXPECT_NEAR(input_factor(3e-16, -1.0, kHold), 3e-16, 1e-30);
}

TEST(InputFactor, MatchesFiftyDigitsAcrossItsBranches) {
  for (int e = -60; e <= 10; ++e) {
    const double delta = std::ldexp(0.7, e);
    const Decimal50 exact = input_factor(Decimal50(delta), Decimal50(-1.3), kHold);
    EXPECT_NEAR(input_factor(delta, -1.3, kHold) / static_cast<double>(exact), 1.0, 4e-16) << e;
  }
}

TEST(SelectiveScan, DecayThatUnderflowsForgets) {
  SelectiveScan<double> x = scalar_case(3);
  x.delta(1, 0) = 1e6;
  x.initial_state(0, 0) = 1e300;
  for (const auto& out : {selective_scan_recurrent(x, kHold), selective_scan_blelloch(x, kHold),
                          selective_scan_chunked(x, kHold, 3)}) {
    EXPECT_EQ(out.y(1, 0), 1.0);
    EXPECT_NEAR(out.state(0, 0), 1.0, 1e-15);
  }
}

TEST(SelectiveScan, NoTokensReturnTheInitialState) {
  SelectiveScan<double> x = scalar_case(0);
  x.initial_state(0, 0) = 5.0;
  for (const auto& out : {selective_scan_recurrent(x, kEuler), selective_scan_hillis_steele(x, kEuler),
                          selective_scan_blelloch(x, kEuler), selective_scan_chunked(x, kEuler, 4)}) {
    EXPECT_EQ(out.y.rows(), 0);
    EXPECT_EQ(out.state(0, 0), 5.0);
  }
}

TEST(SelectiveScan, IntervalsEncloseFloat64) {
  SelectiveScan<Interval> x;
  x.u = x.delta = x.B = x.C = Matrix<Interval>::Ones(5, 1);
  x.A = Matrix<Interval>::Constant(1, 1, Interval(-1));
  x.initial_state = Matrix<Interval>::Zero(1, 1);
  const auto out = selective_scan_blelloch(x, kHold);
  const double mine = selective_scan_recurrent(scalar_case(5), kHold).state(0, 0);
  EXPECT_NEAR(static_cast<double>(mp::median(out.state(0, 0))), mine, 1e-15);
  EXPECT_LT(static_cast<double>(mp::width(out.state(0, 0))), 1e-48);
}

TEST(SelectiveScan, RefusesShapesThatDisagree) {
  const auto refused = [](auto&& edit) {
    SelectiveScan<double> x = integer_case();
    edit(x);
    EXPECT_THROW((void)selective_scan_recurrent(x, kEuler), Error);
    EXPECT_THROW((void)selective_scan_blelloch(x, kEuler), Error);
    EXPECT_THROW((void)selective_scan_chunked(x, kEuler, 2), Error);
  };
  using Scan = SelectiveScan<double>;
  refused([](Scan& x) { x.delta.resize(3, 1); });
  refused([](Scan& x) { x.A.resize(1, 2); });
  refused([](Scan& x) { x.B.resize(2, 2); });
  refused([](Scan& x) { x.C.resize(3, 3); });
  refused([](Scan& x) { x.skip.resize(1); });
  refused([](Scan& x) { x.z.setOnes(2, 2); });
  refused([](Scan& x) { x.initial_state.resize(2, 3); });
  EXPECT_THROW((void)selective_scan_chunked(integer_case(), kEuler, 0), Error);
}

// h -> h / 2 + 1, then h -> 3 h: 3 h / 2 + 3; the other order would be 3 h / 2 + 1.
TEST(AssociativeScan, ComposesInOrder) {
  DiagonalMaps<double> maps{Matrix<double>(3, 1), Matrix<double>(3, 1)};
  maps.a << 0.5, 3, 2;
  maps.b << 1, 0, -1;
  Matrix<double> a(3, 1), b(3, 1);
  a << 0.5, 1.5, 3;
  b << 1, 3, 5;
  for (const DiagonalMaps<double>& prefix : {hillis_steele_scan(maps), blelloch_scan(maps)}) {
    EXPECT_EQ(prefix.a, a);
    EXPECT_EQ(prefix.b, b);
  }
  maps.b.resize(2, 1);
  EXPECT_THROW((void)hillis_steele_scan(maps), Error);
  EXPECT_THROW((void)blelloch_scan(maps), Error);
}

}  // namespace
}  // namespace samestate

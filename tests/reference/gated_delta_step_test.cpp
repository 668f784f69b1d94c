#include "reference/gated_delta_step.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/reference/column.h"

namespace samestate {
namespace {

using test::column;

Vector<double> one(double value) { return Vector<double>::Constant(1, value); }

GatedDeltaStepOutput<double> step(const GatedDeltaStep<double>& x) {
  return gated_delta_step(x, [](const Sequence<double>& head) { return recurrent<GatedDeltaRule>(head); });
}

/// One head, dk = dv = 1, a pool of three slots: A = 1, a + dt_bias = log(e - 1), so that softplus is 1 and alpha = 1/e;
/// b = 0, so that beta = 1/2; q, k, v as they are.
GatedDeltaStep<double> scalar_step() {
  GatedDeltaStep<double> x;
  x.q = column({2});
  x.k = column({3});
  x.v = column({5});
  x.a = column({std::log(std::exp(1.0) - 1.0) - 0.25});
  x.b = column({0});
  x.A_log = one(0);
  x.dt_bias = one(0.25);
  x.pool = column({7, 11, 13});
  x.slot = 1;
  x.normalises = false;
  return x;
}

// GDN-11, 12, 35..39: S~ = 11/e, u = (5 - 3 S~)/2, S = S~ + 3 u, o = 2 S.
TEST(GatedDeltaStep, OfOneNumberIsWorkedOutByHand) {
  const double decayed = 11.0 / std::exp(1.0);
  const double u = (5.0 - 3.0 * decayed) / 2.0;
  const GatedDeltaStepOutput<double> out = step(scalar_step());
  EXPECT_NEAR(out.pool(1, 0), decayed + 3.0 * u, 1e-13);
  EXPECT_NEAR(out.o(0, 0), 2.0 * (decayed + 3.0 * u), 1e-13);
}

TEST(GatedDeltaStep, ReadsAndWritesTheRowsOfItsSlotAlone) {
  GatedDeltaStep<double> x = scalar_step();
  const GatedDeltaStepOutput<double> out = step(x);
  EXPECT_EQ(out.pool(0, 0), 7.0);
  EXPECT_EQ(out.pool(2, 0), 13.0);
  x.pool = column({11, -7, 1e300});
  x.slot = 0;
  const GatedDeltaStepOutput<double> other = step(x);
  EXPECT_EQ(other.o, out.o);
  EXPECT_EQ(other.pool, column({out.pool(1, 0), -7, 1e300}));
}

// vLLM and SGLang write zeros for a request without a slot; no state is its.
TEST(GatedDeltaStep, WithoutASlotIsZeroAndWritesNothing) {
  GatedDeltaStep<double> x = scalar_step();
  x.slot = kNullSlot;
  const GatedDeltaStepOutput<double> out = step(x);
  EXPECT_EQ(out.o, column({0}));
  EXPECT_EQ(out.pool, x.pool);
}

// T > 1 is T calls of one token through the pool.
TEST(GatedDeltaStep, OfTwoTokensIsTwoSteps) {
  GatedDeltaStep<double> both = scalar_step();
  both.q = column({2, -1});
  both.k = column({3, 0.5});
  both.v = column({5, 4});
  both.a = column({0.3, -0.7});
  both.b = column({1, -2});
  const GatedDeltaStepOutput<double> together = step(both);
  GatedDeltaStep<double> part = both;
  Matrix<double> o(2, 1);
  for (Index t = 0; t < 2; ++t) {
    part.q = both.q.row(t);
    part.k = both.k.row(t);
    part.v = both.v.row(t);
    part.a = both.a.row(t);
    part.b = both.b.row(t);
    const GatedDeltaStepOutput<double> out = step(part);
    o.row(t) = out.o;
    part.pool = out.pool;
  }
  EXPECT_EQ(together.o, o);
  EXPECT_EQ(together.pool, part.pool);
}

// GDN-26: four value heads on two key heads, 0 0 1 1 and not 0 1 0 1; GDN-33: scale dk^-1/2. alpha = 0, beta = 1/2 and an
// orthogonal frame of keys give o_h = (k . q) v_h / 2 / sqrt(dk).
TEST(GatedDeltaStep, ServesValueHeadsInterleavedAndScalesByTheKeyWidth) {
  GatedDeltaStep<double> x;
  x.key_heads = 2;
  x.q.resize(2, 4);
  x.q << 1, 0, 0, 0, 0, 10, 0, 0;
  x.k = x.q;
  x.v = column({1, 2, 3, 4});
  x.a = Matrix<double>::Constant(1, 4, 1000.0);
  x.b = Matrix<double>::Zero(1, 4);
  x.A_log = Vector<double>::Zero(4);
  x.dt_bias = Vector<double>::Zero(4);
  x.pool = Matrix<double>::Constant(16, 1, 3.0);
  x.slot = 0;
  x.normalises = false;
  EXPECT_EQ(step(x).o, column({0.25, 0.5, 75, 100}));
  // Normalised, both keys have the length n / (n + 1e-6).
  x.normalises = true;
  const Matrix<double> o = step(x).o;
  EXPECT_NEAR(o(1, 0), 0.5 / (1.0 + 1e-6), 1e-15);
  EXPECT_NEAR(o(2, 0), 0.75 * 100.0 / (100.0 + 1e-6), 1e-15);
}

TEST(GatedDeltaStep, RefusesSlotsAndSizesThatDisagree) {
  const auto refused = [](auto&& change) {
    GatedDeltaStep<double> x = scalar_step();
    change(x);
    EXPECT_THROW((void)step(x), Error);
  };
  refused([](GatedDeltaStep<double>& x) { x.slot = 3; });
  refused([](GatedDeltaStep<double>& x) { x.slot = -2; });
  refused([](GatedDeltaStep<double>& x) { x.key_heads = 2; });
  refused([](GatedDeltaStep<double>& x) { x.q = column({1, 2}); });
  refused([](GatedDeltaStep<double>& x) { x.v = column({1, 2}); });
  refused([](GatedDeltaStep<double>& x) { x.b = column({1, 2}); });
  refused([](GatedDeltaStep<double>& x) { x.A_log = Vector<double>::Zero(2); });
  refused([](GatedDeltaStep<double>& x) { x.pool = Matrix<double>::Zero(3, 2); });
  GatedDeltaStep<double> wide = scalar_step();
  wide.q = Matrix<double>::Ones(1, 2);
  wide.k = wide.q;
  EXPECT_THROW((void)step(wide), Error);  // three rows are no whole number of slots of two
}

}  // namespace
}  // namespace samestate

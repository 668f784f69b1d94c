#include "reference/layers/mamba2.h"

#include <gtest/gtest.h>

#include <cmath>

namespace samestate {
namespace {

/// Two heads of one channel, one group of one state, convolution of width 2. Of the input s: z = (1, 2) s, x
/// = (1, -1) s, B = 2 s, C = s, dt = (1, 0) s.
Mamba2Weights<double> small_mamba2() {
  Mamba2Weights<double> w;
  w.in_proj.resize(8, 1);
  w.in_proj << 1, 2, 1, -1, 2, 1, 1, 0;
  w.conv1d.resize(4, 2);
  w.conv1d << 1, 1, 0, 1, 0, 1, 0, 1;
  w.conv1d_bias.resize(4);
  w.conv1d_bias << 0.5, 0, 0, 0;
  w.dt_bias = Vector<double>::Zero(2);
  w.A_log = Vector<double>::Zero(2);
  w.A_log(1) = std::log(2.0);
  w.skip.resize(2);
  w.skip << 3, 0;
  w.norm.resize(2);
  w.norm << 1, 2;
  w.out_proj = Matrix<double>::Ones(1, 2);
  return w;
}

double silu_by_hand(double x) { return x / (1.0 + std::exp(-x)); }

TEST(Mamba2, OneTokenStepByStep) {
  const Mamba2Weights<double> w = small_mamba2();
  Mamba2Cache<double> cache = empty_mamba2_cache(w);
  cache.convolution.row(0) << 4, 9, 9, 9;
  cache.state << 1, 10;
  const auto out = mamba2<double>(Matrix<double>::Ones(1, 1), w, cache);
  const double x0 = silu_by_hand(5.5);  // 4 from the state, 1, the bias
  const double x1 = silu_by_hand(-1.0);
  const double B = silu_by_hand(2.0);
  const double C = silu_by_hand(1.0);
  EXPECT_NEAR(out.convolved(0, 0), x0, 1e-14);
  EXPECT_NEAR(out.convolved(0, 3), C, 1e-15);
  const double d0 = std::log1p(std::exp(1.0));
  const double d1 = std::log(2.0);
  EXPECT_NEAR(out.delta(0, 0), d0, 1e-15);
  EXPECT_NEAR(out.delta(0, 1), d1, 1e-15);
  const double s0 = std::exp(-d0) * 1.0 + d0 * x0 * B;
  const double s1 = 0.25 * 10.0 + d1 * x1 * B;  // e^{-2 log 2}
  EXPECT_NEAR(out.cache.state(0, 0), s0, 1e-13);
  EXPECT_NEAR(out.cache.state(1, 0), s1, 1e-13);
  const double y0 = s0 * C + 3 * x0;
  const double y1 = s1 * C;
  EXPECT_NEAR(out.y(0, 0), y0, 1e-13);
  EXPECT_NEAR(out.y(0, 1), y1, 1e-13);
  const double a0 =
      y0 * silu_by_hand(1.0);  // the gate is z, which is not convolved, and comes before the norm
  const double a1 = y1 * silu_by_hand(2.0);
  const double root = std::sqrt((a0 * a0 + a1 * a1) / 2 + 1e-5);
  EXPECT_NEAR(out.normed(0, 0), a0 / root, 1e-14);
  EXPECT_NEAR(out.normed(0, 1), 2 * a1 / root, 1e-14);
  EXPECT_NEAR(out.out(0, 0), a0 / root + 2 * a1 / root, 1e-14);
  Matrix<double> last(1, 4);
  last << 1, -1, 2, 1;
  EXPECT_EQ(out.cache.convolution, last);
}

// A mean over each of two channels alone leaves only the sign, up to epsilon.
TEST(Mamba2, NormOverGroupsIsAnotherNorm) {
  Matrix<double> y(1, 2), z(1, 2);
  y << 3, -4;
  z << 1, 1;
  const Vector<double> weight = Vector<double>::Ones(2);
  const Matrix<double> one = grouped_norm_of_gated<double>(y, z, weight, 0.0, 1);
  const Matrix<double> two = grouped_norm_of_gated<double>(y, z, weight, 0.0, 2);
  EXPECT_NEAR(one(0, 0), 3 / std::sqrt(12.5), 1e-15);
  EXPECT_NEAR(two(0, 0), 1.0, 1e-15);
  EXPECT_NEAR(two(0, 1), -1.0, 1e-15);
  EXPECT_THROW((void)grouped_norm_of_gated<double>(y, z, weight, 0.0, 3), Error);
  EXPECT_THROW((void)grouped_norm_of_gated<double>(y, z, weight, 0.0, 0), Error);
}

TEST(Mamba2, ZeroTokensStayZero) {
  Mamba2Weights<double> w = small_mamba2();
  w.conv1d_bias.setZero();
  const auto out = mamba2<double>(Matrix<double>::Zero(3, 1), w, empty_mamba2_cache(w));
  EXPECT_EQ(out.out, (Matrix<double>::Zero(3, 1)));
}

TEST(Mamba2, NoTokensReturnTheCache) {
  const Mamba2Weights<double> w = small_mamba2();
  const Mamba2Cache<double> cache{Matrix<double>::Constant(1, 4, 3.0), Matrix<double>::Constant(2, 1, 5.0)};
  for (const auto& out : {mamba2(Matrix<double>(0, 1), w, cache),
                          mamba2(Matrix<double>(0, 1), w, cache, state_space_quadratic<double>)}) {
    EXPECT_EQ(out.out.rows(), 0);
    EXPECT_EQ(out.cache.convolution, cache.convolution);
    EXPECT_EQ(out.cache.state, cache.state);
  }
}

TEST(Mamba2, RefusesWeightsCachesAndCutsThatDisagree) {
  const auto refused = [](auto&& edit) {
    Mamba2Weights<double> w = small_mamba2();
    Mamba2Cache<double> cache = empty_mamba2_cache(w);
    edit(w, cache);
    EXPECT_THROW((void)mamba2<double>(Matrix<double>::Ones(2, 1), w, cache), Error);
  };
  using W = Mamba2Weights<double>;
  using C = Mamba2Cache<double>;
  refused([](W& w, C&) { w.groups = 0; });
  refused([](W& w, C&) { w.groups = 3; });
  refused([](W& w, C&) { w.norm_groups = 3; });
  refused([](W& w, C&) { w.in_proj.setOnes(9, 1); });
  refused([](W& w, C&) { w.conv1d.setOnes(5, 2); });
  refused([](W& w, C&) { w.conv1d.setOnes(2, 2); });
  refused([](W& w, C&) { w.conv1d.setOnes(4, 3); });
  refused([](W& w, C&) { w.dt_bias.setOnes(3); });
  refused([](W& w, C&) { w.A_log.setOnes(3); });
  refused([](W& w, C&) { w.A_log.resize(0); });
  refused([](W& w, C&) { w.skip.setOnes(3); });
  refused([](W& w, C&) { w.norm.setOnes(3); });
  refused([](W& w, C&) { w.out_proj.setOnes(1, 3); });
  refused([](W&, C& c) { c.convolution.setZero(2, 4); });
  refused([](W&, C& c) { c.state.setZero(2, 2); });

  const Mamba2Weights<double> w = small_mamba2();
  const Matrix<double> x = Matrix<double>::Ones(3, 1);
  const Mamba2Cache<double> empty = empty_mamba2_cache(w);
  EXPECT_THROW((void)mamba2_resumed(x, w, empty, {2, 1}, state_space_recurrent<double>), Error);
  EXPECT_THROW((void)mamba2_resumed(x, w, empty, {4}, state_space_recurrent<double>), Error);
}

}  // namespace
}  // namespace samestate

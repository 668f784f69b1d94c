#include "reference/layers/mamba.h"

#include <gtest/gtest.h>

#include <cmath>

namespace samestate {
namespace {

/// Width 1 throughout: x = 2 s and z = 3 s of the input s; a convolution of width 2 with weights (1, 1), bias
/// 0.5.
MambaWeights<double> small_layer() {
  MambaWeights<double> w;
  w.in_proj.resize(2, 1);
  w.in_proj << 2, 3;
  w.conv1d = Matrix<double>::Ones(1, 2);
  w.conv1d_bias = Vector<double>::Constant(1, 0.5);
  w.x_proj.resize(3, 1);
  w.x_proj << 1, 2, -1;  // dt, B, C
  w.dt_proj = Matrix<double>::Constant(1, 1, 0.5);
  w.dt_bias = Vector<double>::Constant(1, 0.25);
  w.A_log = Matrix<double>::Zero(1, 1);
  w.skip = Vector<double>::Constant(1, 4.0);
  w.out_proj = Matrix<double>::Constant(1, 1, -1.0);
  return w;
}

double sigma(double x) { return 1.0 / (1.0 + std::exp(-x)); }

TEST(Mamba, OneTokenStepByStep) {
  const MambaWeights<double> w = small_layer();
  const auto out =
      mamba<double>(Matrix<double>::Ones(1, 1), w, {Matrix<double>::Ones(1, 1), Matrix<double>::Ones(1, 1)});
  EXPECT_EQ(out.mixed(0, 0), 2.0);
  EXPECT_EQ(out.z(0, 0), 3.0);
  const double u = 3.5 * sigma(3.5);  // 1 from the state, 2, the bias
  EXPECT_NEAR(out.u(0, 0), u, 1e-15);
  EXPECT_NEAR(out.B(0, 0), 2 * u, 1e-14);
  EXPECT_NEAR(out.C(0, 0), -u, 1e-15);
  const double delta = std::log1p(std::exp(0.5 * u + 0.25));
  EXPECT_NEAR(out.delta(0, 0), delta, 1e-14);
  const double h = std::exp(-delta) + delta * 2 * u * u;
  EXPECT_NEAR(out.cache.state(0, 0), h, 1e-13);
  EXPECT_NEAR(out.y(0, 0), -u * h + 4 * u, 1e-12);
  EXPECT_NEAR(out.gated(0, 0), (-u * h + 4 * u) * 3.0 * sigma(3.0), 1e-12);
  EXPECT_EQ(out.out(0, 0), -out.gated(0, 0));
  EXPECT_EQ(out.cache.convolution(0, 0), 2.0);  // the input of the convolution, not its output
}

TEST(Mamba, HoldIsAnotherLayer) {
  MambaWeights<double> w = small_layer();
  w.discretisation = Discretisation::zero_order_hold;
  const auto out = mamba<double>(Matrix<double>::Ones(1, 1), w, empty_mamba_cache(w));
  const double delta = out.delta(0, 0);
  EXPECT_NEAR(out.cache.state(0, 0), (1.0 - std::exp(-delta)) * out.B(0, 0) * out.u(0, 0), 1e-13);
}

TEST(Mamba, ProjectionBiasesOfTheDocument) {
  MambaWeights<double> w = small_layer();
  w.in_bias = Vector<double>::Constant(2, 1.0);
  w.out_bias = Vector<double>::Constant(1, 100.0);
  const auto out = mamba<double>(Matrix<double>::Ones(1, 1), w, empty_mamba_cache(w));
  EXPECT_EQ(out.mixed(0, 0), 3.0);
  EXPECT_EQ(out.z(0, 0), 4.0);
  EXPECT_EQ(out.out(0, 0), 100.0 - out.gated(0, 0));
}

TEST(Mamba, NoTokensReturnTheCache) {
  const MambaWeights<double> w = small_layer();
  const MambaCache<double> cache{Matrix<double>::Constant(1, 1, 3.0), Matrix<double>::Constant(1, 1, 5.0)};
  for (const auto& out : {mamba(Matrix<double>(0, 1), w, cache),
                          mamba(Matrix<double>(0, 1), w, cache, selective_scan_blelloch<double>)}) {
    EXPECT_EQ(out.out.rows(), 0);
    EXPECT_EQ(out.cache.convolution(0, 0), 3.0);
    EXPECT_EQ(out.cache.state(0, 0), 5.0);
  }
}

TEST(Mamba, RefusesWeightsCachesAndCutsThatDisagree) {
  const auto refused = [](auto&& edit) {
    MambaWeights<double> w = small_layer();
    MambaCache<double> cache = empty_mamba_cache(w);
    edit(w, cache);
    EXPECT_THROW((void)mamba<double>(Matrix<double>::Ones(2, 1), w, cache), Error);
  };
  using W = MambaWeights<double>;
  using C = MambaCache<double>;
  refused([](W& w, C&) { w.in_proj.setOnes(3, 1); });
  refused([](W& w, C&) { w.in_proj.setOnes(2, 2); });
  refused([](W& w, C&) { w.conv1d.setOnes(1, 3); });
  refused([](W& w, C&) { w.conv1d_bias.setOnes(2); });
  refused([](W& w, C&) { w.x_proj.setOnes(4, 1); });
  refused([](W& w, C&) { w.dt_proj.setOnes(2, 1); });
  refused([](W& w, C&) { w.dt_bias.setOnes(2); });
  refused([](W& w, C&) { w.skip.setOnes(2); });
  refused([](W& w, C&) { w.out_proj.setOnes(1, 2); });
  refused([](W&, C& c) { c.convolution.setZero(2, 1); });
  refused([](W&, C& c) { c.state.setZero(1, 2); });

  MambaWeights<double> w = small_layer();
  const MambaCache<double> empty = empty_mamba_cache(w);
  const Matrix<double> x = Matrix<double>::Ones(3, 1);
  EXPECT_THROW((void)mamba_resumed(x, w, empty, {2, 1}, selective_scan_recurrent<double>), Error);
  EXPECT_THROW((void)mamba_resumed(x, w, empty, {4}, selective_scan_recurrent<double>), Error);
  w.conv1d.resize(1, 0);
  EXPECT_THROW((void)empty_mamba_cache(w), Error);
}

}  // namespace
}  // namespace samestate

#include "reference/layers/multi_scale_retention.h"

#include <gtest/gtest.h>

#include "reference/retention.h"

namespace samestate {
namespace {

/// The core from a zero state.
const auto kCore = [](const Matrix<double>& q, const Matrix<double>& k, const Matrix<double>& v, double gamma,
                      Index) {
  Sequence<double> x{q, k, v, {}, {}, 1.0, {}};
  return retention_parallel_constant(x, gamma);
};

MultiScaleRetentionWeights<double> ones(Index heads, Index rows) {
  const Matrix<double> in = Matrix<double>::Ones(rows, 1);
  return {heads, in, in, in, in, Matrix<double>::Ones(1, rows), 0.0};
}

// One head of width 2, D = 1, x = (3, 5): v of token t is x_t (1, 1); the norm makes it (1, 1), the gate
// silu(x_t), the output 2 silu(x_t). Before the norm: position 0 does not turn, so the core is 2 x 9 / sqrt 2
// x 3.
TEST(MultiScaleRetention, ByHand) {
  const Matrix<double> x = (Matrix<double>(2, 1) << 3, 5).finished();
  const auto out = multi_scale_retention(x, ones(1, 2), kCore);
  EXPECT_NEAR(out.core(0, 0), 54 / std::sqrt(2.0), 1e-13);
  // The angle between tokens 0 and 1 is 1, whatever their positions; the decay of head 0 is 31/32.
  const double same = 2 * 25 / std::sqrt(2.0) * 5;
  const double earlier = 2 * 15 / std::sqrt(2.0) * std::cos(1.0) * 3 * 31 / 32;
  EXPECT_NEAR(out.core(1, 1), same + earlier, 1e-12);
  EXPECT_NEAR(out.normed(1, 0), 1.0, 1e-15);
  EXPECT_NEAR(out.y(0, 0), 2 * silu(3.0), 1e-14);
  EXPECT_NEAR(out.y(1, 0), 2 * silu(5.0), 1e-14);
  EXPECT_NEAR(multi_scale_retention(x, ones(1, 2), kCore, 7).core(1, 1), same + earlier, 1e-12);
}

// Head h decays by 1 - 2^{-5-h}.
TEST(MultiScaleRetention, DecayOfTheHeads) {
  std::vector<double> gammas;
  const auto record = [&](const Matrix<double>& q, const Matrix<double>&, const Matrix<double>& v,
                          double gamma, Index h) {
    EXPECT_EQ(h, static_cast<Index>(gammas.size()));
    EXPECT_EQ(q.cols(), 2);
    gammas.push_back(gamma);
    return v;
  };
  static_cast<void>(multi_scale_retention<double>(Matrix<double>::Ones(1, 1), ones(3, 6), record));
  EXPECT_EQ(gammas, (std::vector<double>{31.0 / 32, 63.0 / 64, 127.0 / 128}));
}

TEST(MultiScaleRetention, BadInput) {
  const Matrix<double> x = Matrix<double>::Ones(2, 1);
  EXPECT_THROW(static_cast<void>(multi_scale_retention(x, ones(3, 4), kCore)), Error);
  EXPECT_THROW(static_cast<void>(multi_scale_retention(x, ones(0, 4), kCore)), Error);
  EXPECT_THROW(static_cast<void>(multi_scale_retention(x, ones(4, 4), kCore)),
               Error);  // a width of 1 cannot turn
  MultiScaleRetentionWeights<double> w = ones(1, 2);
  w.k_proj = Matrix<double>::Ones(4, 1);
  EXPECT_THROW(static_cast<void>(multi_scale_retention(x, w, kCore)), Error);
  EXPECT_THROW(
      static_cast<void>(multi_scale_retention<double>(Matrix<double>::Ones(2, 3), ones(1, 2), kCore)), Error);
}

}  // namespace
}  // namespace samestate

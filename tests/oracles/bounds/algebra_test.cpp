#include "oracles/bounds/algebra.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "oracles/bounds/chunked.h"
#include "oracles/bounds/inverse.h"
#include "oracles/bounds/recurrent.h"
#include "tests/oracles/bounds/heads.h"

namespace samestate {
namespace {

using Det = Algebra<Mode::det>;
using Prob = Algebra<Mode::prob>;

double smallest_eigenvalue(const Matrix<double>& symmetric) {
  return Eigen::SelfAdjointEigenSolver<Matrix<double>>(symmetric).eigenvalues().minCoeff();
}

// F1: every E with row norms m satisfies E E^T <= Diag(diag(m)). Rows along one direction attain |E E^T| = m
// m^T.
TEST(Algebra, DiagMajorisesWhenRowsAreParallel) {
  std::mt19937 random(1);
  double bitten = 0.0;
  for (int trial = 0; trial < 200; ++trial) {
    Vector<double> m = random_matrix(random, 7, 1).cwiseAbs();
    Matrix<double> E = random_matrix(random, 7, 5);
    if (trial % 2 == 0) E.rowwise() = E.row(0).eval();
    for (Index i = 0; i < E.rows(); ++i) E.row(i) *= m(i) / E.row(i).norm();
    const Matrix<double> worst = Det::diag(m).asDiagonal();
    const Matrix<double> mean = Prob::diag(m).asDiagonal();
    const Matrix<double> square = E * E.transpose();
    EXPECT_GE(smallest_eigenvalue(worst - square), -1e-12);
    bitten = std::min(bitten, smallest_eigenvalue(mean - square));
  }
  EXPECT_LT(bitten, -0.1) << "the statistical diagonal is no majorant of parallel rows";
}

// F2: (X + Y + Z)(X + Y + Z)^T <= sum of factor_i Q_i, and the roots of the traces add.
TEST(Algebra, EllipsoidSumMajorises) {
  std::mt19937 random(2);
  double bitten = 0.0;
  for (int trial = 0; trial < 200; ++trial) {
    const Matrix<double> X = random_matrix(random, 6, 4);
    const Matrix<double> Y = trial % 2 == 0 ? Matrix<double>(0.3 * X) : random_matrix(random, 6, 4);
    const Matrix<double> Z = 1e-3 * random_matrix(random, 6, 4);
    const Matrix<double> sum = X + Y + Z;
    const Matrix<double> qx = X * X.transpose();
    const Matrix<double> qy = Y * Y.transpose();
    const Matrix<double> qz = Z * Z.transpose();
    const auto [fx, fy, fz] = worst_case_factors<3>({qx.trace(), qy.trace(), qz.trace()});
    const Matrix<double> majorant = fx * qx + fy * qy + fz * qz;
    EXPECT_GE(smallest_eigenvalue(majorant - sum * sum.transpose()), -1e-10);
    EXPECT_NEAR(std::sqrt(majorant.trace()), X.norm() + Y.norm() + Z.norm(), 1e-12);
    bitten = std::min(bitten, smallest_eigenvalue(qx + qy + qz - sum * sum.transpose()));
  }
  EXPECT_LT(bitten, -0.1) << "the plain sum is no majorant";
}

TEST(Algebra, ZeroEllipsoidsDropOut) {
  const auto [f, h] = worst_case_factors<2>({4.0, 0.0});
  EXPECT_EQ(f, 1.0);
  EXPECT_EQ(h, 0.0);
  const auto none = worst_case_factors<2>({0.0, 0.0});
  EXPECT_EQ(none[0], 0.0);
}

// F3 in det and F4 in prob, on errors of the sizes that the primitives speak of.
TEST(Algebra, PrimitivesCoverTheErrorsTheyDescribe) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> unit(-1.0, 1.0);
  const Matrix<double> M = random_matrix(random, 5, 6);
  const Matrix<double> N = random_matrix(random, 6, 4);
  const Vector<double> y = random_matrix(random, 6, 1).cwiseAbs();
  Vector<double> squares = Vector<double>::Zero(5);
  const int trials = 4000;
  for (int trial = 0; trial < trials; ++trial) {
    Matrix<double> Y = random_matrix(random, 6, 3);
    for (Index j = 0; j < 6; ++j) Y.row(j) *= y(j) / Y.row(j).norm();
    const Vector<double> error = (M * Y).rowwise().norm();
    EXPECT_TRUE((error.array() <= Det::mv(M, y).array() * (1 + 1e-12)).all());
    squares += error.cwiseAbs2();
    Matrix<double> off = M;
    for (double& x : off.reshaped()) x *= unit(random);
    EXPECT_TRUE(((off * N).cwiseAbs().array() <= Det::mm(M, N).array() * (1 + 1e-12)).all());
  }
  const Vector<double> rms = (squares / trials).cwiseSqrt();
  EXPECT_LT((rms.cwiseQuotient(Prob::mv(M, y)).array() - 1.0).abs().maxCoeff(), 0.05);
  EXPECT_DOUBLE_EQ(Det::add(3.0, 4.0), 7.0);
  EXPECT_DOUBLE_EQ(Prob::add(3.0, 4.0), 5.0);
  EXPECT_DOUBLE_EQ(Prob::u(Format::bf16) * std::sqrt(3.0), Det::u(Format::bf16));
}

// A dot product accumulated in fp32, in three orders, against the bound and against half of it.
TEST(Algebra, AccumulationCoversFp32Sums) {
  std::mt19937 random(4);
  double worst = 0.0;
  for (int trial = 0; trial < 500; ++trial) {
    const Index n = 2 + trial % 3;
    const Vector<double> x = random_matrix(random, n, 1).cast<float>().cast<double>();
    const Vector<double> y = random_matrix(random, n, 1).cast<float>().cast<double>();
    float forward = 0.0F;
    float backward = 0.0F;
    for (Index i = 0; i < n; ++i) {
      forward += static_cast<float>(x(i)) * static_cast<float>(y(i));
      backward += static_cast<float>(x(n - 1 - i)) * static_cast<float>(y(n - 1 - i));
    }
    const double bound = Det::acc(n, x.cwiseAbs().dot(y.cwiseAbs()), 0.0, Accumulator::fp32);
    for (const float sum : {forward, backward}) {
      worst = std::max(worst, std::fabs(static_cast<double>(sum) - x.dot(y)) / bound);
    }
  }
  EXPECT_LE(worst, 1.0);
  EXPECT_GT(worst, 0.4) << "the bound is attained within a small factor";
}

// A tensor core of blocks of 16, truncated to fp32.
TEST(Algebra, AccumulationCoversTruncatedBlocks) {
  std::mt19937 random(5);
  const auto truncated = [](double x) {
    const auto nearest = static_cast<float>(x);
    const bool over = std::fabs(static_cast<double>(nearest)) > std::fabs(x);
    return static_cast<double>(over ? std::nextafter(nearest, 0.0F) : nearest);
  };
  double worst = 0.0;
  double squares = 0.0;
  for (int trial = 0; trial < 500; ++trial) {
    const Vector<double> x = random_matrix(random, 64, 1);
    const Vector<double> y = random_matrix(random, 64, 1);
    double sum = 0.0;
    for (Index l = 0; l < 64; l += 16) sum = truncated(sum + x.segment(l, 16).dot(y.segment(l, 16)));
    const double size = x.cwiseAbs().dot(y.cwiseAbs());
    const double spread = std::sqrt(x.cwiseAbs2().dot(y.cwiseAbs2()));
    const double error = std::fabs(sum - x.dot(y));
    worst = std::max(worst, error / Det::acc(64, size, 0.0, Accumulator::tensor_core));
    squares += std::pow(error / Prob::acc(64, spread, std::fabs(x.dot(y)), Accumulator::tensor_core), 2);
  }
  EXPECT_LE(worst, 1.0);
  EXPECT_LT(std::sqrt(squares / 500), 1.0);
  EXPECT_GT(std::sqrt(squares / 500), 0.03);
}

// The inverse in fp32 by substitution and by Neumann doubling, against its det bound and its statistical one.
TEST(Algebra, InverseErrorCoversFp32Inverses) {
  std::mt19937 random(6);
  for (int trial = 0; trial < 30; ++trial) {
    const Index L = 20;
    const Matrix<double> A = (0.3 * random_matrix(random, L, L))
                                 .cast<float>()
                                 .cast<double>()
                                 .triangularView<Eigen::StrictlyLower>();
    const Matrix<double> one = Matrix<double>::Identity(L, L);
    const Matrix<double> T = (one + A).triangularView<Eigen::UnitLower>().solve(one);
    const Matrix<float> a = A.cast<float>();
    Matrix<float> substituted = one.cast<float>();
    for (Index i = 1; i < L; ++i) substituted.row(i) -= a.row(i).head(i) * substituted.topRows(i);
    Matrix<float> X = one.cast<float>() - a;
    Matrix<float> power = a;
    for (Index n = 2; n < L; n *= 2) {
      power = (power * power).eval();
      X += (X * power).eval();
    }
    const auto covered = [&](const Matrix<float>& computed, Inverse inverse) {
      Contract c;
      c.inverse = inverse;
      const Matrix<double> bound = bounds::inverse_error(A, T, c, Mode::det);
      const Matrix<double> error = (computed.cast<double>() - T).cwiseAbs();
      EXPECT_TRUE((error.array() <= bound.array() * (1 + 1e-6) + 1e-300).all());
      const Matrix<double> prob = bounds::inverse_error(A, T, c, Mode::prob);
      EXPECT_LE(error.norm(), prob.norm());
      EXPECT_LE(prob.norm(), bound.norm());
    };
    covered(substituted, Inverse::substitution);
    covered(X, Inverse::neumann);
  }
}

// prob <= semi <= det, in the trace of Sigma: each adds at least what the one before adds.
TEST(Algebra, ModesAreOrdered) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    const Sequence<double> x = random_head(seed, 40, 8, 6);
    for (const bool low : {false, true}) {
      Contract contract;
      if (low) contract.state = contract.T = contract.v_new = contract.output = Format::bf16;
      for (const bool delta : {true, false}) {
        const auto trace = [&](Mode mode, bool recurrent) {
          return (recurrent ? bound_recurrent(x, contract, {delta}, mode)
                            : bound_chunked(x, contract, {delta}, mode, 16))
              .carry.sigma.trace();
        };
        for (const bool recurrent : {true, false}) {
          EXPECT_LT(trace(Mode::prob, recurrent), trace(Mode::semi, recurrent));
          EXPECT_LT(trace(Mode::semi, recurrent), trace(Mode::det, recurrent));
        }
      }
    }
  }
}

}  // namespace
}  // namespace samestate

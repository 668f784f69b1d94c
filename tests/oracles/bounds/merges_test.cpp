/// The inverse by block rows and with operands that are truncated off: kernels of it within their bound, the mean as predicted.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <random>

#include "oracles/bounds/inverse.h"
#include "oracles/contracts.h"

namespace samestate {
namespace {

using Mat = Matrix<float>;

float truncated(float x) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xffffe000U); }
float nearest(float x) {
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) + 0x1000U) & 0xffffe000U);
}

Matrix<double> strictly_lower(std::uint64_t seed, Index L) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> draw(0.0, 0.2);
  Matrix<double> A = Matrix<double>::Zero(L, L);
  for (Index i = 0; i < L; ++i) {
    for (Index j = 0; j < i; ++j) A(i, j) = static_cast<double>(static_cast<float>(draw(random)));
  }
  return A;
}

Matrix<double> inverse_of(const Matrix<double>& A) {
  const Matrix<double> one = Matrix<double>::Identity(A.rows(), A.rows());
  return (one + A).triangularView<Eigen::UnitLower>().solve(one);
}

/// Blocks of 16, T_ij = -T_ii sum_m A_im T_mj, next to the diagonal -(T_ii A_ij) T_jj; every operand through `round`.
Mat by_rows(const Mat& A, float (*round)(float)) {
  const Index L = A.rows();
  const auto operand = [&](const Mat& x) -> Mat { return x.unaryExpr([&](float v) { return round(v); }); };
  Mat T = Mat::Zero(L, L);
  for (Index i = 0; i < L; i += 16) {
    T.block(i, i, 16, 16) = inverse_of(A.block(i, i, 16, 16).cast<double>()).cast<float>();
    const Mat Tii = operand(T.block(i, i, 16, 16));
    for (Index j = i - 16; j >= 0; j -= 16) {
      if (j + 16 == i) {
        const Mat M = Tii * operand(A.block(i, j, 16, 16));
        T.block(i, j, 16, 16) = -(operand(M) * operand(T.block(j, j, 16, 16)));
      } else {
        const Mat M = operand(A.block(i, j, 16, i - j)) * operand(T.block(j, j, i - j, 16));
        T.block(i, j, 16, 16) = -(Tii * operand(M));
      }
    }
  }
  return T;
}

Contract merged(Format operand, MergeOrder order) {
  Contract c;
  c.inverse = Inverse::block16;
  c.inverse_operand = operand;
  c.merges = order;
  return c;
}

TEST(Merges, ByRowsStayWithinTheirBound) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Matrix<double> A = strictly_lower(seed, 64), T = inverse_of(A);
    using Case = std::pair<float (*)(float), Format>;
    for (const auto& [round, format] :
         {Case{nearest, Format::tf32}, Case{truncated, Format::tf32_truncated}}) {
      const Contract c = merged(format, MergeOrder::rows);
      const Matrix<double> error = (by_rows(A.cast<float>(), round).cast<double>() - T).cwiseAbs();
      const Matrix<double> hard = bounds::inverse_error(A, T, c, Mode::det);
      EXPECT_TRUE((error.array() <= hard.array() + 1e-7).all());
      EXPECT_LE(error.norm(), 1.5 * bounds::inverse_error(A, T, c, Mode::prob).norm());
      // The bound is about these operands: with fp32 ones it would not hold.
      const Matrix<double> none =
          bounds::inverse_error(A, T, merged(Format::fp32, MergeOrder::rows), Mode::det);
      EXPECT_GT((error - none).maxCoeff(), 0.0);
    }
  }
}

TEST(Merges, OperandsThatAreCutOffShrinkTheInverseAsPredicted) {
  for (const std::uint64_t seed : {4, 5}) {
    const Matrix<double> A = strictly_lower(seed, 64), T = inverse_of(A);
    const Matrix<double> mean = bounds::inverse_bias(A, T, merged(Format::tf32_truncated, MergeOrder::rows));
    const auto along = [&](float (*round)(float)) {
      const Matrix<double> error = by_rows(A.cast<float>(), round).cast<double>() - T;
      return error.cwiseProduct(mean).sum() / mean.squaredNorm();
    };
    // 0.69 to 0.72 of the prediction where all operands are truncated off, 0.49 seen here: the ones on the diagonal are exact.
    EXPECT_GT(along(truncated), 0.35);
    EXPECT_LT(along(truncated), 1.1);
    EXPECT_LT(std::abs(along(nearest)), 0.2);
    EXPECT_EQ(bounds::inverse_bias(A, T, merged(Format::tf32, MergeOrder::rows)).size(), 0);
    // Both orders shrink alike where there is one merge.
    const Matrix<double> small = strictly_lower(seed, 32), of_small = inverse_of(small);
    const Matrix<double> rows =
        bounds::inverse_bias(small, of_small, merged(Format::tf32_truncated, MergeOrder::rows));
    const Matrix<double> pairs =
        bounds::inverse_bias(small, of_small, merged(Format::tf32_truncated, MergeOrder::pairwise));
    EXPECT_LT((rows - pairs).norm(), 1e-9 * pairs.norm());
  }
}

// If all keys are alike, a doubled inverse sums binomials, which leave the integers of fp32 and then its
// range, while T stays small.
TEST(Inverse, DoublingSumsWhatTheInverseDoesNotHave) {
  const auto alike = [](Index tokens, double beta) {
    Matrix<double> A = Matrix<double>::Constant(tokens, tokens, beta);
    return Matrix<double>(A.triangularView<Eigen::StrictlyLower>());
  };
  const Contract& doubled = contract_named("fp32+inverse:neumann/fp32");
  EXPECT_EQ(bounds::largest_of_inverse(alike(84, 1.0), contract_named("fp32")), 0.0);
  EXPECT_LT(bounds::largest_of_inverse(alike(16, 1.0), doubled), 0x1p24);
  EXPECT_GT(bounds::largest_of_inverse(alike(84, 1.0), doubled), 0x1p24);
  EXPECT_LT(bounds::largest_of_inverse(alike(64, 2.0), doubled), 0x1p100);
  EXPECT_GT(bounds::largest_of_inverse(alike(160, 2.0), doubled), 0x1p126);
}

}  // namespace
}  // namespace samestate

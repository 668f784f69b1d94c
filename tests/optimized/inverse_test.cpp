#include "optimized/cpu/inverse.h"

#include <gtest/gtest.h>

#include <random>

#include "optimized/cpu/fused_sums.h"

namespace samestate::cpu {
namespace {

/// Strictly lower triangular, elements of size about 1 / sqrt(n), or small integers on few places.
Block triangle(std::int64_t size, bool integers) {
  std::mt19937 random(static_cast<std::uint32_t>(size));
  Block A;
  A.resize(size, size);
  for (std::int64_t i = 0; i < size; ++i) {
    for (std::int64_t j = 0; j < i; ++j) {
      const float uniform = static_cast<float>(random()) * 0x1p-31F - 1.0F;
      A.row(i)[j] = integers ? (random() % 16U == 0 ? std::round(uniform) : 0.0F)
                             : uniform / std::sqrt(static_cast<float>(size));
    }
  }
  return A;
}

/// max |T (I + A) - I| in double, with the size max (|T| |I + A|) that its roundings scale with.
struct Residual {
  double error = 0;
  double size = 0;
};

Residual residual(const Block& A, const Block& T) {
  Residual r;
  for (std::int64_t i = 0; i < A.rows; ++i) {
    for (std::int64_t j = 0; j < A.rows; ++j) {
      double sum = 0;
      double size = 0;
      for (std::int64_t l = 0; l < A.rows; ++l) {
        const double term = static_cast<double>(T.row(i)[l]) * ((l == j ? 1.0 : 0.0) + A.row(l)[j]);
        sum += term;
        size += std::fabs(term);
      }
      r.error = std::max(r.error, std::fabs(sum - (i == j ? 1.0 : 0.0)));
      r.size = std::max(r.size, size);
    }
  }
  return r;
}

Block inverse_of(const Block& A, Inverse inverse, Format operand) {
  Contract contract;
  contract.inverse = inverse;
  contract.inverse_operand = operand;
  Block T;
  T.resize(A.rows, A.columns);
  T.values.assign(T.values.size(), 7.0F);  // a chunk before this one was here
  for (std::int64_t i = 0; i < T.rows; ++i) std::fill(T.row(i) + T.columns, T.row(i) + T.stride, 0.0F);
  invert(FusedSums{}, contract, A, T);
  return T;
}

constexpr Inverse all[] = {Inverse::substitution, Inverse::block16, Inverse::neumann, Inverse::block8};

TEST(Inverse, EveryAlgorithmInvertsEverySize) {
  for (const Inverse inverse : all) {
    for (const std::int64_t size : {1, 2, 3, 15, 16, 17, 31, 32, 33, 48, 64, 65, 100, 128}) {
      const Block A = triangle(size, false);
      const Residual r = residual(A, inverse_of(A, inverse, Format::fp32));
      // n roundings in a row, doubled for the two products of a merge (ASNA 14.2).
      EXPECT_LE(r.error, 2.0 * static_cast<double>(size) * 0x1p-24 * r.size) << size;
      EXPECT_GE(r.size, 1.0);
    }
  }
}

TEST(Inverse, IntegersAreExact) {
  for (const std::int64_t size : {5, 16, 33, 64}) {
    const Block A = triangle(size, true);
    const Block T = inverse_of(A, Inverse::substitution, Format::fp32);
    EXPECT_EQ(residual(A, T).error, 0.0);
    for (const Inverse inverse : all)
      EXPECT_EQ(inverse_of(A, inverse, Format::fp32).values, T.values) << size;
  }
}

TEST(Inverse, OperandsOfMergesAreRounded) {
  const Block A = triangle(64, false);
  for (const Inverse inverse : {Inverse::block16, Inverse::block8, Inverse::neumann}) {
    const double fine = residual(A, inverse_of(A, inverse, Format::fp32)).error;
    const double coarse = residual(A, inverse_of(A, inverse, Format::bf16)).error;
    EXPECT_GT(coarse, 100 * fine);
    EXPECT_LT(coarse, 0.1);
  }
  // The diagonal blocks of block16 and block8 are fp32 substitution; substitution itself rounds no operand.
  const Block exact = inverse_of(A, Inverse::substitution, Format::bf16);
  EXPECT_EQ(exact.values, inverse_of(A, Inverse::substitution, Format::fp32).values);
  for (const auto& [inverse, base] : {std::pair{Inverse::block16, 16}, {Inverse::block8, 8}}) {
    const Block blocked = inverse_of(A, inverse, Format::bf16);
    int merged = 0;
    for (std::int64_t i = 0; i < 64; ++i) {
      for (std::int64_t j = i / base * base; j < i / base * base + base; ++j) {
        ASSERT_EQ(blocked.row(i)[j], exact.row(i)[j]);
      }
      for (std::int64_t j = 0; j < i / base * base; ++j)
        merged += blocked.row(i)[j] != exact.row(i)[j] ? 1 : 0;
    }
    EXPECT_GT(merged, 1000) << "elements below the blocks come of rounded operands";
  }
}

TEST(Inverse, MergesOfBlock8RoundTiesAwayFromZero) {
  // One merge of two 8 x 8 identities: the corner is -round(round(1) round(A)) round(1), A on a tie of tf32.
  Block A;
  A.resize(16, 16);
  A.row(8)[0] = 0x1.002p0F;
  A.row(9)[1] = -0x1.002p0F;
  const Block away = inverse_of(A, Inverse::block8, Format::tf32);
  EXPECT_EQ(away.row(8)[0], -0x1.004p0F);
  EXPECT_EQ(away.row(9)[1], 0x1.004p0F);
  const Block fp32 = inverse_of(A, Inverse::block8, Format::fp32);
  EXPECT_EQ(fp32.row(8)[0], -0x1.002p0F);
  EXPECT_EQ(fp32.row(9)[1], 0x1.002p0F);
}

TEST(Inverse, AFaultInOneElementShows) {
  const Block A = triangle(33, false);
  Block T = inverse_of(A, Inverse::substitution, Format::fp32);
  T.row(20)[3] += 1e-3F;
  EXPECT_GT(residual(A, T).error, 1e-4);
}

}  // namespace
}  // namespace samestate::cpu

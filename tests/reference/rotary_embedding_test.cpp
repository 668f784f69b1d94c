#include "reference/rotary_embedding.h"

#include <gtest/gtest.h>

#include <limits>

namespace samestate {
namespace {

constexpr double kTheta = 1e4;

// CFG-10: 64 of 256 columns, theta 1e7, frequency theta^(-2i/64).
TEST(RotaryTables, HoldTheAnglesOfQwen3Next) {
  const RotaryTables<double> tables = rotary_tables(std::vector<Index>{0, 3, 262143}, Index{64}, 1e7);
  EXPECT_EQ(tables.width(), 64);
  EXPECT_TRUE(tables.cos.row(0).isOnes(0));
  EXPECT_TRUE(tables.sin.row(0).isZero(0));
  for (Index i = 0; i < 32; ++i) {
    const double frequency = std::pow(1e7, -2.0 * static_cast<double>(i) / 64.0);
    EXPECT_NEAR(tables.cos(1, i), std::cos(3 * frequency), 1e-14);
    EXPECT_NEAR(tables.sin(1, i), std::sin(3 * frequency), 1e-14);
  }
  EXPECT_NEAR(tables.cos(2, 0), std::cos(262143.0), 1e-15);
}

TEST(RotaryTables, OfConsecutivePositionsBeginAtTheFirst) {
  const RotaryTables<double> run = rotary_tables(Index{5}, Index{3}, Index{4}, kTheta);
  const RotaryTables<double> listed = rotary_tables(std::vector<Index>{5, 6, 7}, Index{4}, kTheta);
  EXPECT_EQ(run.cos, listed.cos);
  EXPECT_EQ(run.sin, listed.sin);
  EXPECT_EQ(rotary_tables(Index{5}, Index{0}, Index{4}, kTheta).cos.rows(), 0);
}

TEST(RotaryTables, RefuseOddWidthsAndThetaWithoutLogarithm) {
  EXPECT_THROW((void)rotary_tables(Index{0}, Index{1}, Index{3}, kTheta), Error);
  EXPECT_THROW((void)rotary_tables(Index{0}, Index{1}, Index{-2}, kTheta), Error);
  EXPECT_THROW((void)rotary_tables(Index{0}, Index{1}, Index{2}, 0.0), Error);
  EXPECT_THROW((void)rotary_tables(Index{0}, Index{1}, Index{2}, std::numeric_limits<double>::quiet_NaN()),
               Error);
}

/// One token whose pairs turn by 90 degrees and by 180.
RotaryTables<double> quarter_and_half() {
  RotaryTables<double> tables{Matrix<double>(1, 2), Matrix<double>(1, 2)};
  tables.cos << 0, -1;
  tables.sin << 1, 0;
  return tables;
}

Matrix<double> row(std::initializer_list<double> values) {
  Matrix<double> x(1, static_cast<Index>(values.size()));
  Index i = 0;
  for (double value : values) x(0, i++) = value;
  return x;
}

// (a, b) -> (-b, a) at 90 degrees; columns from the fifth on are not part of the rotation.
TEST(Rotate, TurnsHalvesOfTheRotatedColumns) {
  EXPECT_EQ(rotate(row({1, 2, 3, 4, 5, 6}), quarter_and_half()), row({-3, -2, 1, -4, 5, 6}));
}

TEST(Rotate, TurnsInterleavedPairs) {
  EXPECT_EQ(rotate(row({1, 2, 3, 4, 5, 6}), quarter_and_half(), RotaryPairs::interleaved),
            row({-2, 1, -3, -4, 5, 6}));
}

TEST(Rotate, TurnsEveryHeadAlike) {
  EXPECT_EQ(rotate(row({1, 2, 3, 4, 9, 5, 6, 7, 8, 9}), quarter_and_half(), RotaryPairs::halves, 2),
            row({-3, -2, 1, -4, 9, -7, -6, 5, -8, 9}));
}

TEST(Rotate, ByOneRadianAPosition) {
  const Matrix<double> x = row({1, 0}).replicate(3, 1);
  const Matrix<double> y = rotate(x, rotary_tables(Index{0}, Index{3}, Index{2}, kTheta));
  for (Index t = 0; t < 3; ++t) {
    EXPECT_NEAR(y(t, 0), std::cos(static_cast<double>(t)), 1e-15);
    EXPECT_NEAR(y(t, 1), std::sin(static_cast<double>(t)), 1e-15);
  }
}

TEST(Rotate, OfWidthZeroAndOfNoTokensChangesNothing) {
  const Matrix<double> x = row({1, 2, 3});
  EXPECT_EQ(rotate(x, rotary_tables(Index{7}, Index{1}, Index{0}, kTheta)), x);
  const RotaryTables<double> none = rotary_tables(Index{7}, Index{0}, Index{2}, kTheta);
  EXPECT_EQ(rotate(Matrix<double>(0, 3), none).rows(), 0);
}

TEST(Rotate, RefusesTablesThatDoNotFit) {
  const RotaryTables<double> tables = quarter_and_half();
  EXPECT_THROW((void)rotate(row({1, 2, 3}), tables), Error);
  EXPECT_THROW((void)rotate(row({1, 2, 3, 4}), tables, RotaryPairs::halves, 3), Error);
  EXPECT_THROW((void)rotate(row({1, 2, 3, 4}), tables, RotaryPairs::halves, 0), Error);
  EXPECT_THROW((void)rotate(row({1, 2, 3, 4}), tables, RotaryPairs::halves, 2), Error);
  EXPECT_THROW((void)rotate(row({1, 2, 3, 4}).replicate(2, 1).eval(), tables), Error);
  RotaryTables<double> ragged = tables;
  ragged.sin = Matrix<double>::Zero(1, 1);
  EXPECT_THROW((void)rotate(row({1, 2, 3, 4}), ragged), Error);
}

}  // namespace
}  // namespace samestate

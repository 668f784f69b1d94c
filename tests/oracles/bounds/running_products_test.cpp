#include "oracles/bounds/running_products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "oracles/bounds/stored.h"
#include "reference/online_softmax.h"

namespace samestate {
namespace {

enum class Holds { numbers, zeros, ones, pending, tiny, infinite };

Matrix<Running> drawn(Index rows, Index columns, Holds holds, std::mt19937_64& engine) {
  std::normal_distribution<double> normal;
  Matrix<Running> out(rows, columns);
  for (Index i = 0; i < rows; ++i) {
    for (Index j = 0; j < columns; ++j) {
      const double x = normal(engine);
      Running element = Running::within(x, engine() % 3 == 0 ? 0.0 : 1e-7 * std::abs(normal(engine)));
      const bool special = engine() % 4 == 0;
      if (holds == Holds::zeros && special) element = Running();
      if (holds == Holds::ones && special) element = Running(1.0);
      if (holds == Holds::pending && special) element = Running(x) + Running(normal(engine)) + Running(0.25);
      if (holds == Holds::tiny && special) element = Running(x * 0x1p-70);
      if (holds == Holds::infinite && engine() % 64 == 0)
        element = Running::within(x, std::numeric_limits<double>::infinity());
      out(i, j) = element;
    }
  }
  return out;
}

/// As the operators of Running say.
Matrix<Running> term_by_term(const Matrix<Running>& x, const Matrix<Running>& y) {
  Matrix<Running> out(x.rows(), y.cols());
  for (Index i = 0; i < x.rows(); ++i) {
    for (Index j = 0; j < y.cols(); ++j) {
      Running sum;
      for (Index l = 0; l < x.cols(); ++l) sum += x(i, l) * y(l, j);
      out(i, j) = sum;
    }
  }
  return out;
}

void expect_same(const Matrix<Running>& actual, const Matrix<Running>& expected, const char* what) {
  ASSERT_EQ(actual.rows(), expected.rows());
  for (Index i = 0; i < actual.rows(); ++i) {
    for (Index j = 0; j < actual.cols(); ++j) {
      const Running &x = actual(i, j), &y = expected(i, j);
      ASSERT_EQ(std::isfinite(x.error()), std::isfinite(y.error())) << what;
      if (!std::isfinite(y.error())) continue;
      ASSERT_NEAR(x.value(), y.value(), 1e-13 * (1.0 + std::abs(y.value()))) << what;
      ASSERT_NEAR(x.error(), y.error(), 1e-9 * y.error()) << what << ' ' << i << ' ' << j;
      // Pending errors are charged as the terms would be.
      ASSERT_NEAR((x + y).error(), (y + y).error(), 1e-9 * (y + y).error()) << what;
    }
  }
}

TEST(RunningProducts, AreThoseOfTheirElements) {
  std::mt19937_64 engine(11);
  constexpr Holds kAll[] = {Holds::numbers, Holds::zeros, Holds::ones,
                            Holds::pending, Holds::tiny,  Holds::infinite};
  for (const Holds left : kAll) {
    for (const Holds right : kAll) {
      for (const Index depth : {3, 40, 300}) {
        const Matrix<Running> x = drawn(21, depth, left, engine), y = drawn(depth, 18, right, engine);
        const Matrix<Running> expected = term_by_term(x, y);
        expect_same(x * y, expected, "product");
        const Eigen::Matrix<Running, Eigen::Dynamic, Eigen::Dynamic> by_columns = x;
        expect_same(by_columns * y, expected, "columns first");
        expect_same(Matrix<Running>(y.transpose() * x.transpose()).transpose(), expected, "transposed");
        const Vector<Running> v = y.col(3);
        expect_same(x * v, expected.col(3), "vector");
        expect_same(by_columns * v, expected.col(3), "vector, columns first");
        expect_same(v.transpose() * x.transpose(), expected.col(3).transpose(), "row");
      }
    }
  }
}

// Whatever a kernel of fp32 makes of numbers of fp32, here in order, lies within.
TEST(RunningProducts, BoundAProductInSinglePrecision) {
  std::mt19937_64 engine(12);
  std::normal_distribution<float> normal;
  constexpr Index kDepth = 200;
  const Matrix<float> x = Matrix<float>::NullaryExpr(8, kDepth, [&] { return normal(engine); });
  const Matrix<float> y = Matrix<float>::NullaryExpr(kDepth, 8, [&] { return normal(engine); });
  const Matrix<Running> product = x.cast<double>().cast<Running>() * y.cast<double>().cast<Running>();
  double largest = 0.0;
  for (Index i = 0; i < 8; ++i) {
    for (Index j = 0; j < 8; ++j) {
      float sum = 0.0F;
      for (Index l = 0; l < kDepth; ++l) sum += x(i, l) * y(l, j);
      const double error = std::abs(static_cast<double>(sum) - product(i, j).value());
      EXPECT_LE(error, product(i, j).error());
      largest = std::max(largest, error / product(i, j).error());
    }
  }
  EXPECT_GT(largest, 1e-3);
}

// A tile's keys by one product: the values and bounds of key after key, of rows that do not see all of a tile too.
TEST(RunningProducts, ATileOfKeysIsThatOfItsKeys) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  const auto drawn = [&](Index rows, Index columns) {
    Matrix<Running> x(rows, columns);
    for (Index i = 0; i < x.size(); ++i) x.data()[i] = Running::within(normal(random), 1e-7);
    return x;
  };
  AttentionInputs<Running> x;
  x.q = drawn(5, 8);
  x.k = drawn(21, 8);
  x.v = drawn(21, 6);
  x.heads = x.key_heads = 2;
  x.scale = Running(0.5);
  x.key_mask.assign(21, true);
  x.key_mask[3] = x.key_mask[9] = false;
  constexpr Index kTile = 8;
  for (const bool infinite : {false, true}) {
    if (infinite) x.v(3, 1) = Running::overflowing(INFINITY);  // of a key that nobody sees
    const Matrix<Running> o = softmax_attention_online(x, kTile);
    for (Index h = 0; h < x.heads; ++h) {
      const Matrix<Running> scores =
          detail::scores_of(detail::head_columns(x.q, h, 4), detail::head_columns(x.k, h, 4), x.scale);
      for (Index t = 0; t < x.tokens(); ++t) {
        OnlineSoftmax<Running> row(3);
        for (Index begin = 0; begin < x.keys(); begin += kTile) {
          const Index n = std::min(kTile, x.keys() - begin);
          const auto largest = detail::largest_seen(x, t, begin, scores.row(t).segment(begin, n));
          if (!largest) continue;
          row.raise(*largest);
          for (Index s = begin; s < begin + n; ++s) {
            if (x.sees(t, s)) row.add(scores(t, s), x.v.row(s).segment(3 * h, 3));
          }
        }
        for (Index j = 0; j < 3; ++j) {
          const Running one = row.values(j) / row.sum, tile = o(t, 3 * h + j);
          EXPECT_NEAR(tile.value(), one.value(), 1e-14);
          EXPECT_NEAR(tile.error() / one.error(), 1.0, 1e-6);
        }
      }
    }
  }
}

TEST(StoredProducts, AreThoseOfDoubles) {
  std::mt19937_64 engine(13);
  std::normal_distribution<double> normal;
  const Matrix<double> x = Matrix<double>::NullaryExpr(30, 40, [&] { return normal(engine); });
  const Matrix<double> y = Matrix<double>::NullaryExpr(40, 25, [&] { return normal(engine); });
  const Matrix<Stored> product = x.cast<Stored>() * y.cast<Stored>();
  const Matrix<double> expected = x * y;
  for (Index i = 0; i < 30; ++i) {
    for (Index j = 0; j < 25; ++j) EXPECT_NEAR(product(i, j).value(), expected(i, j), 1e-13);
  }
}

}  // namespace
}  // namespace samestate

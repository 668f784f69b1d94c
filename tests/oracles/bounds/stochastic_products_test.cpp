#include "oracles/bounds/stochastic_products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "reference/state_passes.h"

namespace samestate {
namespace {

enum class Filled { numbers, zeros, ones, pending, ones_and_pending };

Matrix<Stochastic> made(Index rows, Index columns, Filled holds, std::mt19937_64& engine) {
  std::normal_distribution<double> normal;
  Matrix<Stochastic> out(rows, columns);
  for (Index i = 0; i < out.size(); ++i) {
    const double x = normal(engine);
    Stochastic element(x);
    const auto special = engine() % 4;
    if (holds == Filled::zeros && special == 0) element = Stochastic();
    if ((holds == Filled::ones || holds == Filled::ones_and_pending) && special == 0)
      element = Stochastic(1.0);
    if ((holds == Filled::pending || holds == Filled::ones_and_pending) && special == 1)
      element = Stochastic(x) + Stochastic(normal(engine)) * Stochastic(0.3);
    out.data()[i] = element;
  }
  return out;
}

/// As the operators of Stochastic say.
Matrix<Stochastic> term_by_term(const Matrix<Stochastic>& x, const Matrix<Stochastic>& y) {
  Matrix<Stochastic> out(x.rows(), y.cols());
  for (Index i = 0; i < x.rows(); ++i) {
    for (Index j = 0; j < y.cols(); ++j) {
      Stochastic sum;
      for (Index l = 0; l < x.cols(); ++l) sum += x(i, l) * y(l, j);
      out(i, j) = sum;
    }
  }
  return out;
}

/// A draw is a function of the leading bits of a value, which the order of a sum of doubles reaches where its terms cancel:
/// of a hundred thousand elements a few.
int differing(const Matrix<Stochastic>& actual, const Matrix<Stochastic>& expected) {
  EXPECT_EQ(actual.rows(), expected.rows());
  EXPECT_EQ(actual.cols(), expected.cols());
  int count = 0;
  for (Index i = 0; i < actual.size(); ++i) {
    const Stochastic &x = actual.data()[i], &y = expected.data()[i];
    const double size = 1.0 + std::abs(y.value());
    EXPECT_NEAR(x.value(), y.value(), 0x1p-17 * size);
    // Pending errors are drawn as those of the terms.
    count += std::abs(x.value() - y.value()) > 1e-13 * size ||
             std::abs((x + y).value() - (y + y).value()) > 1e-13 * size;
  }
  return count;
}

class StochasticProducts : public testing::TestWithParam<Planted> {};

TEST_P(StochasticProducts, AreThoseOfTheirElements) {
  SampledModel model;
  model.working = true;
  model.salt = 77;
  model.planted = GetParam();
  const SamplingScope scope(model);
  std::mt19937_64 engine(11);
  int different = 0;
  Index elements = 0;
  const auto compare = [&](const Matrix<Stochastic>& actual, const Matrix<Stochastic>& expected) {
    elements += expected.size();
    different += differing(actual, expected);
  };
  constexpr Filled kAll[] = {Filled::numbers, Filled::zeros, Filled::ones, Filled::pending,
                             Filled::ones_and_pending};
  for (const Filled left : kAll) {
    for (const Filled right : kAll) {
      for (const Index depth : {3, 40, 200}) {
        const Matrix<Stochastic> x = made(21, depth, left, engine), y = made(depth, 18, right, engine);
        const Matrix<Stochastic> expected = term_by_term(x, y);
        compare(x * y, expected);
        const Eigen::Matrix<Stochastic, Eigen::Dynamic, Eigen::Dynamic> by_columns = x;
        compare(by_columns * y, expected);
        compare(Matrix<Stochastic>(y.transpose() * x.transpose()).transpose(), expected);
        const Vector<Stochastic> v = y.col(3);
        compare(x * v, expected.col(3));
        compare(v.transpose() * x.transpose(), expected.col(3).transpose());
      }
    }
  }
  EXPECT_GT(elements, 80000);
  EXPECT_LT(different, elements / 2000);
}
INSTANTIATE_TEST_SUITE_P(Planted, StochasticProducts,
                         testing::Values(Planted::none, Planted::partial, Planted::sums));

TEST(StochasticProducts, RoundWhatTheyShould) {
  std::mt19937_64 engine(3);
  const Matrix<Stochastic> x = made(20, 64, Filled::pending, engine),
                           y = made(64, 20, Filled::numbers, engine);
  const auto product_of = [&](bool working) {
    SampledModel model;
    model.working = working;
    model.salt = 5;
    const SamplingScope scope(model);
    const Matrix<Stochastic> product = x * y;
    Matrix<double> out(product.rows(), product.cols());
    for (Index i = 0; i < out.size(); ++i) out.data()[i] = product.data()[i].value();
    return out;
  };
  const Matrix<double> exact = product_of(false), drawn = product_of(true);
  const double error = (drawn - exact).norm() / exact.norm();
  EXPECT_GT(error, 0x1p-26);  // of a sum of 64 terms, whose first factor is a sum that was rounded
  EXPECT_LT(error, 0x1p-21);
}

/// Sixteen odd numbers alike whose sum is 0: the squares of them are a multiple of the grid's, and they do not lie on it. Of
/// small numbers all sums lie on it.
TEST(StochasticProducts, TermsThatTheGridDoesNotHoldAreDrawn) {
  SampledModel model;
  model.working = true;
  model.salt = 7;
  const SamplingScope scope(model);
  const auto sum_of = [](double size) {
    Matrix<Stochastic> x(2, 16), y(16, 2);
    for (Index i = 0; i < 16; ++i) {
      x(0, i) = x(1, i) = Stochastic(size);
      y(i, 0) = y(i, 1) = Stochastic(i % 2 == 0 ? size : -size);
    }
    const Matrix<Stochastic> product = x * y;
    const Stochastic sum = product(0, 0);
    EXPECT_TRUE(Stochastic::sum_of(16.0, 0.0, 16.0 * size * size * size * size)
                    .seems_exact(Stochastic::sum_of(16.0, 0.0, 16.0 * size * size * size * size).grid()));
    return sum.value();
  };
  EXPECT_NE(sum_of(2047.0), 0.0);
  EXPECT_EQ(sum_of(3.0), 0.0);
}

/// A pass over a state draws a key once for all columns; element by element it gives the same.
TEST(StochasticPasses, AreThoseOfTheirElements) {
  SampledModel model;
  model.working = true;
  model.salt = 9;
  const SamplingScope scope(model);
  std::mt19937_64 engine(5);
  const Matrix<Stochastic> key = made(1, 7, Filled::ones_and_pending, engine);
  const Stochastic alpha = Stochastic(0.7) + Stochastic(0.2) * Stochastic(0.9);
  Matrix<Stochastic> S = made(7, 9, Filled::pending, engine);
  Matrix<Stochastic> expected(1, 9);
  for (Index j = 0; j < 9; ++j) {
    Stochastic sum;
    for (Index l = 0; l < 7; ++l) sum = key(0, l) * (alpha * S(l, j)) + sum;
    expected(0, j) = sum;
  }
  const Matrix<Stochastic> read = decay_read(alpha, key, S);
  for (Index j = 0; j < 9; ++j) EXPECT_EQ(read(0, j).value(), expected(0, j).value());
}

}  // namespace
}  // namespace samestate

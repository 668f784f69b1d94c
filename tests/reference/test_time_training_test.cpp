#include "reference/test_time_training.h"

#include <gtest/gtest.h>

#include "reference/linear_attention.h"
#include "tests/reference/draw.h"

namespace samestate {
namespace {

using test::relative;

struct Token {
  Matrix<double> S;
  Vector<double> k;
  Vector<double> v;
};

Token draw_token(Index dk, Index dv) {
  const Sequence<double> x = test::draw(1, dk, dv, 6);
  return {x.initial_state, 1.5 * x.k.row(0).transpose(), x.v.row(0).transpose()};
}

Matrix<double> one(double x) { return Matrix<double>::Constant(1, 1, x); }
Vector<double> entry(double x) { return Vector<double>::Constant(1, x); }

// S = 2, k = 3, v = 5: the model says 6.
TEST(TestTimeTraining, ByHand) {
  const Matrix<double> S = one(2);
  EXPECT_EQ(inner_product_loss(S, entry(3), entry(5)), -30.0);
  EXPECT_EQ(ridge_loss(S, entry(3), entry(5), 0.5), -29.0);
  EXPECT_EQ(squared_loss(S, entry(3), entry(5)), 0.5);
  EXPECT_EQ(inner_product_gradient(S, entry(3), entry(5)), one(-15));
  EXPECT_EQ(ridge_gradient(S, entry(3), entry(5), 0.5), one(-14));
  EXPECT_EQ(squared_gradient(S, entry(3), entry(5)), one(3));
  EXPECT_EQ(gradient_step(S, one(3), 0.25), one(1.25));
}

// DELTA-9: S = 0, k = v = 1, beta = 1/2 gives 1/2; without beta on the write it gives 1.
TEST(TestTimeTraining, DocumentCounterexample) {
  EXPECT_EQ(gradient_step(one(0), squared_gradient(one(0), entry(1), entry(1)), 0.5), one(0.5));
}

// DELTA-6: with |k|^2 = 2 the step overshoots, S_t k = 2 v - S k.
TEST(TestTimeTraining, NoExactRecallOfLongKeys) {
  Token token = draw_token(3, 2);
  token.k *= std::sqrt(2.0) / std::sqrt(token.k.squaredNorm());
  const Matrix<double> after = gradient_step(token.S, squared_gradient(token.S, token.k, token.v), 1.0);
  const Vector<double> expected = 2 * token.v - token.S.transpose() * token.k;
  EXPECT_LE(relative(Vector<double>(after.transpose() * token.k), expected), 1e-14);
}

// The truncation error of central differences is 0 for these losses: any step does, and a small one rounds.
TEST(TestTimeTraining, StepOfTheDifferences) {
  const Token token = draw_token(4, 3);
  const auto loss = [&](const Matrix<double>& S) { return squared_loss(S, token.k, token.v); };
  const Matrix<double> gradient = squared_gradient(token.S, token.k, token.v);
  EXPECT_LE(relative(gradient_by_central_differences(loss, token.S, 1.0), gradient), 1e-14);
  EXPECT_LE(relative(gradient_by_central_differences(loss, token.S, 1e-5), gradient), 1e-9);
  EXPECT_GT(relative(gradient_by_central_differences(loss, token.S, 1e-5), gradient), 1e-14);
  EXPECT_THROW(static_cast<void>(gradient_by_central_differences(loss, token.S, 0.0)), Error);
}

// A wrong gradient is seen: the document prints the gradient where the loss belongs (DELTA-1).
TEST(TestTimeTraining, DifferentiationBites) {
  const Token token = draw_token(4, 3);
  const auto loss = [&](const Matrix<DualNumber<double>>& S) {
    return squared_loss<DualNumber<double>>(S, token.k.cast<DualNumber<double>>(),
                                            token.v.cast<DualNumber<double>>());
  };
  const Matrix<double> gradient = gradient_by_dual_numbers(loss, token.S);
  EXPECT_LE(relative(squared_gradient(token.S, token.k, token.v), gradient), 1e-14);
  EXPECT_GT(relative(inner_product_gradient(token.S, token.k, token.v), gradient), 0.1);
}

// The proximal point of S_0 = 0, k = v = 1: argmin 1/2 (S - 1)^2 + S^2 / (2 eta) = eta / (1 + eta).
TEST(TestTimeTraining, ProximalByHand) {
  EXPECT_EQ(proximal_step(one(0), entry(1), entry(1), 3.0), one(0.75));
  EXPECT_EQ(proximal_write_strength(entry(1), 3.0), 0.75);
  const Token token = draw_token(4, 3);
  EXPECT_EQ(proximal_step(token.S, token.k, token.v, 0.0), token.S);
}

// It is a minimum: the objective rises in every direction.
TEST(TestTimeTraining, ProximalIsAMinimum) {
  const Token token = draw_token(4, 3);
  const double eta = 0.7;
  const auto objective = [&](const Matrix<double>& S) {
    return squared_loss(S, token.k, token.v) + (S - token.S).squaredNorm() / (2 * eta);
  };
  const Matrix<double> best = proximal_step(token.S, token.k, token.v, eta);
  for (Index i = 0; i < best.size(); ++i) {
    for (const double h : {-1e-3, 1e-3}) {
      Matrix<double> beside = best;
      beside.data()[i] += h;
      EXPECT_GT(objective(beside), objective(best)) << i;
    }
  }
}

TEST(TestTimeTraining, NoTokens) {
  const Sequence<double> x = test::draw(0, 3, 2);
  const auto never = [](const Matrix<double>& S, const Vector<double>&, const Vector<double>&, Index) {
    return 2 * S;
  };
  const Trajectory<double> y = test_time_training(x, never);
  EXPECT_EQ(y.state, x.initial_state);
  EXPECT_EQ(y.o.rows(), 0);
}

TEST(TestTimeTraining, BadInput) {
  const Token token = draw_token(4, 3);
  EXPECT_THROW(static_cast<void>(squared_loss(token.S, token.v, token.v)), Error);
  EXPECT_THROW(static_cast<void>(ridge_gradient(token.S, token.k, token.k, 0.5)), Error);
  EXPECT_THROW(static_cast<void>(gradient_step(token.S, one(1), 0.5)), Error);
  EXPECT_THROW(static_cast<void>(proximal_step(token.S, token.k, token.v, -0.5)), Error);
  EXPECT_THROW(static_cast<void>(solve_positive_definite(one(0), one(1))), Error);
  EXPECT_THROW(static_cast<void>(solve_positive_definite(one(1), Matrix<double>(token.S))), Error);
}

}  // namespace
}  // namespace samestate

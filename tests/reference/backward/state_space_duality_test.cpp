#include <gtest/gtest.h>

#include "reference/backward/chunk.h"
#include "reference/backward/recurrence.h"
#include "reference/backward/selective_scan.h"
#include "reference/backward/state_space_duality.h"
#include "reference/retention.h"
#include "tests/reference/backward/gradient_check.h"

namespace samestate {
namespace {

using test::expect_gradients;
using test::expect_seen;
using test::GradientCheck;
using test::normal;
using test::ScalarOf;
using test::Tensors;

constexpr Index kSteps = 7;

Matrix<double> positive(Index rows, Index columns, unsigned seed) {
  return (0.5 * normal(rows, columns, seed).array()).exp().matrix();
}

/// u, delta, A, B, C, initial state, and with `extras` skip and z.
Tensors<double> scan_tensors(bool extras, double step = 1.0) {
  Tensors<double> out{normal(kSteps, 3, 1), step * positive(kSteps, 3, 2), -positive(3, 4, 3),
                      normal(kSteps, 4, 4), normal(kSteps, 4, 5),          normal(3, 4, 6)};
  if (extras) out.push_back(normal(3, 1, 7));
  if (extras) out.push_back(normal(kSteps, 3, 8));
  return out;
}

template <class Scalar>
SelectiveScan<Scalar> scan_of(const Tensors<Scalar>& x) {
  SelectiveScan<Scalar> out{x[0], x[1], x[2], x[3], x[4], {}, {}, x[5]};
  if (x.size() > 6) out.skip = x[6].col(0);
  if (x.size() > 6) out.z = x[7];
  return out;
}

auto scan_forward(Discretisation mode) {
  return [=](const auto& x) {
    auto y = selective_scan_recurrent(scan_of(x), mode);
    return std::decay_t<decltype(x)>{std::move(y.out), std::move(y.state)};
  };
}

auto scan_backward(Discretisation mode, bool with_state = true) {
  return [=](const auto& x, const auto& d) {
    using Scalar = ScalarOf<decltype(x)>;
    const auto g =
        selective_scan_backward<Scalar>(scan_of(x), mode, {d[0], with_state ? d[1] : Matrix<Scalar>()});
    std::decay_t<decltype(x)> out{g.u, g.delta, g.A, g.B, g.C, g.initial_state};
    if (x.size() > 6) out.emplace_back(g.skip);
    if (x.size() > 6) out.push_back(g.z);
    return out;
  };
}

TEST(SelectiveScanBackward, IsTheDerivative) {
  for (const Discretisation mode : {Discretisation::euler, Discretisation::zero_order_hold}) {
    const Discretisation other =
        mode == Discretisation::euler ? Discretisation::zero_order_hold : Discretisation::euler;
    for (const bool extras : {true, false}) {
      const GradientCheck check(scan_tensors(extras), scan_forward(mode));
      expect_gradients(check, scan_backward(mode));
      expect_seen(check, scan_backward(mode, false), "the cotangent of the state");
      expect_seen(check, scan_backward(other), "the other discretisation");
      const auto without = [&](std::size_t which) {
        return [&, which](const auto& x, const auto& d) {
          auto out = scan_backward(mode)(x, d);
          // The skip's part of du, or the decay's part of dDelta.
          if (which == 0) out[0] -= d[0] * x[6].col(0).asDiagonal();
          if (which == 1) out[1] = out[0].cwiseProduct(x[0]).cwiseQuotient(x[1]);
          return out;
        };
      };
      if (extras) expect_seen(check, without(0), "the skip");
      expect_seen(check, without(1), "the decay");
    }
  }
}

// Small steps, where the slope of (e^x - 1) / A by A cancels unless it is a series.
TEST(SelectiveScanBackward, KeepsItsDigitsForSmallSteps) {
  for (const double step : {1e-3, 1e-9}) {
    for (const double rate : {-0.5, -1e-4}) {
      const auto slope = input_factor_slopes(step, rate, Discretisation::zero_order_hold);
      const Decimal100 x = Decimal100(step) * Decimal100(rate);
      const Decimal100 e = exp(x);
      const Decimal100 exact = (Decimal100(step) * e - expm1(x) / Decimal100(rate)) / Decimal100(rate);
      EXPECT_NEAR(slope.A, static_cast<double>(exact), 4e-16 * static_cast<double>(exact)) << step << rate;
      EXPECT_EQ(slope.delta, std::exp(step * rate));
    }
  }
  EXPECT_EQ(input_factor_slopes(0.5, 0.0, Discretisation::zero_order_hold).A, 0.125);
}

TEST(SelectiveScanBackward, RefusesOtherShapes) {
  const auto x = scan_of(scan_tensors(false));
  EXPECT_THROW((void)selective_scan_backward<double>(x, Discretisation::euler, {normal(kSteps, 2, 1), {}}),
               Error);
  EXPECT_THROW((void)selective_scan_backward<double>(x, Discretisation::euler,
                                                     {normal(kSteps, 3, 1), normal(4, 3, 1)}),
               Error);
}

constexpr Index kScanHeads = 4;
constexpr Index kGroups = 2;
constexpr Index kChannels = 3;
constexpr Index kStates = 2;

template <class Scalar>
StateSpaceHeads<Scalar> duality_of(const Tensors<Scalar>& x) {
  return {x[0], x[1], x[2].col(0), x[3], x[4], x[5].col(0), x[6], kGroups};
}

Tensors<double> duality_tensors() {
  return {normal(kSteps, kScanHeads * kChannels, 1),
          positive(kSteps, kScanHeads, 2),
          -positive(kScanHeads, 1, 3),
          normal(kSteps, kGroups * kStates, 4),
          normal(kSteps, kGroups * kStates, 5),
          normal(kScanHeads, 1, 6),
          normal(kScanHeads * kChannels, kStates, 7)};
}

auto duality_backward(Index chunk, bool with_state = true) {
  return [=](const auto& x, const auto& d) {
    using Scalar = ScalarOf<decltype(x)>;
    const auto run = [=](const auto& s, const auto& c) {
      return chunk == 0 ? recurrent_backward<Retention>(s, c) : chunked_backward<Retention>(s, c, chunk);
    };
    const auto g =
        state_space_heads_backward<Scalar>(duality_of(x), {d[0], with_state ? d[1] : Matrix<Scalar>()}, run);
    return std::decay_t<decltype(x)>{g.x, g.delta, g.A, g.B, g.C, g.skip, g.initial_state};
  };
}

TEST(StateSpaceDualityBackward, IsTheDerivativeInBothForms) {
  const GradientCheck check(duality_tensors(), [](const auto& x) {
    using Scalar = ScalarOf<decltype(x)>;
    auto y = state_space_heads(duality_of(x),
                               [](const auto& head) { return state_space_recurrent<Scalar>(head); });
    return std::decay_t<decltype(x)>{std::move(y.y), std::move(y.state)};
  });
  for (const Index chunk : {0, 1, 4, 11}) expect_gradients(check, duality_backward(chunk));
  expect_seen(check, duality_backward(0, false), "the cotangent of the state");
  expect_seen(
      check,
      [](const auto& x, const auto& d) {
        auto out = duality_backward(0)(x, d);
        out[1] -= out[1].rowwise().mean() * x[2].transpose();  // part of A dg
        return out;
      },
      "dDelta through the decay");
  expect_seen(
      check,
      [](const auto& x, const auto& d) {
        // B and C of the first head of each group alone.
        auto cut = d;
        for (Index h = 1; h < kScanHeads; h += kScanHeads / kGroups) {
          cut[0].middleCols(h * kChannels, kChannels).setZero();
          cut[1].middleRows(h * kChannels, kChannels).setZero();
        }
        auto out = duality_backward(0)(x, d);
        const auto part = duality_backward(0)(x, cut);
        out[3] = part[3];
        out[4] = part[4];
        return out;
      },
      "the sum over a group");
}

TEST(StateSpaceDualityBackward, RefusesOtherShapes) {
  const auto x = duality_of(duality_tensors());
  const auto run = [](const auto& s, const auto& c) { return recurrent_backward<Retention>(s, c); };
  EXPECT_THROW((void)state_space_heads_backward<double>(x, {normal(kSteps, 2, 1), {}}, run), Error);
  EXPECT_THROW((void)state_space_heads_backward<double>(
                   x, {normal(kSteps, kScanHeads * kChannels, 1), normal(2, 2, 1)}, run),
               Error);
}

}  // namespace
}  // namespace samestate

#include <gtest/gtest.h>

#include <limits>

#include "reference/backward/gates.h"
#include "reference/backward/l2norm.h"
#include "reference/backward/linear.h"
#include "reference/backward/norms.h"
#include "reference/backward/rotary_embedding.h"
#include "reference/backward/short_convolution.h"
#include "tests/reference/backward/gradient_check.h"

namespace samestate {
namespace {

using test::expect_gradients;
using test::expect_seen;
using test::GradientCheck;
using test::normal;
using test::ScalarOf;
using test::Tensors;

/// The first column of a tensor, as a vector.
template <class Scalar>
Vector<Scalar> vec(const Matrix<Scalar>& x) {
  return x.col(0);
}

/// A list of tensors of the scalar of x.
template <class List>
using Like = Tensors<ScalarOf<List>>;

TEST(PiecesBackward, Activations) {
  for (const double at : {-745.0, -30.0, -1.5, 0.0, 0.7, 30.0}) {
    const DualNumber<Decimal100> x(Decimal100(at), Decimal100(1));
    const double logistic_expected = static_cast<double>(logistic(x).derivative());
    const double silu_expected = static_cast<double>(silu(x).derivative());
    EXPECT_NEAR(logistic_slope(at), logistic_expected, 4e-16 * std::abs(logistic_expected)) << at;
    EXPECT_NEAR(silu_slope(at), silu_expected, 4e-16 * std::abs(silu_expected) + 2e-16 * (at < -1)) << at;
  }
}

TEST(PiecesBackward, Gates) {
  const GradientCheck check(
      {normal(5, 3, 1), normal(5, 3, 2), normal(3, 1, 3), normal(3, 1, 4)}, [](const auto& x) {
        return Like<decltype(x)>{write_strength(x[0]), log_decay(x[1], vec(x[2]), vec(x[3]))};
      });
  const auto backward = [](const auto& x, const auto& d) {
    const auto g = log_decay_backward(x[1], vec(x[2]), vec(x[3]), d[1]);
    return Like<decltype(x)>{write_strength_backward(x[0], d[0]), g.a, g.A_log, g.dt_bias};
  };
  expect_gradients(check, backward);
  const auto losing = [&](int which) {
    return [&backward, which](const auto& x, const auto& d) {
      auto out = backward(x, d);
      if (which == 0) out[0] = d[0].cwiseProduct(logistic(x[0]));
      if (which == 1) out[1] = -out[1];
      if (which == 2) out[2].setZero();
      if (which == 3) out[3] = out[3] / ScalarOf<decltype(x)>(5);
      return out;
    };
  };
  for (const int which : {0, 1, 2, 3}) expect_seen(check, losing(which), "gates");
}

// A reset has dg = 0 and g = -inf, and an overflowing rate with no cotangent is no NaN either.
TEST(PiecesBackward, SaturatedGatesGiveZero) {
  const Matrix<double> a = Matrix<double>::Constant(1, 1, 1.0);
  const auto d = log_decay_backward<double>(a, Vector<double>::Constant(1, 800.0), Vector<double>::Zero(1),
                                            Matrix<double>::Zero(1, 1));
  EXPECT_EQ(d.a(0, 0), 0.0);
  EXPECT_EQ(d.A_log(0), 0.0);
  EXPECT_EQ(write_strength_backward<double>(Matrix<double>::Constant(1, 1, 800.0), a)(0, 0), 0.0);
  EXPECT_THROW((void)log_decay_backward<double>(a, Vector<double>::Zero(1), Vector<double>::Zero(1),
                                                Matrix<double>::Zero(2, 1)),
               Error);
}

TEST(PiecesBackward, LogisticGate) {
  const GradientCheck check({normal(4, 3, 1), normal(4, 3, 2)}, [](const auto& x) {
    return Like<decltype(x)>{x[0].cwiseProduct(logistic(x[1]))};
  });
  const auto backward = [](const auto& x, const auto& d) {
    const auto g = logistic_gate_backward(x[0], x[1], d[0]);
    return Like<decltype(x)>{g.x, g.z};
  };
  expect_gradients(check, backward);
  expect_seen(
      check,
      [&](const auto& x, const auto& d) {
        auto out = backward(x, d);
        out[1] = d[0].cwiseProduct(x[0]).cwiseProduct(logistic(x[1]));
        return out;
      },
      "1 - sigma");
}

TEST(PiecesBackward, L2norm) {
  // Short rows, so that epsilon is seen.
  const GradientCheck check({1e-3 * normal(4, 5, 1)},
                            [](const auto& x) { return Like<decltype(x)>{l2norm(x[0])}; });
  expect_gradients(
      check, [](const auto& x, const auto& d) { return Like<decltype(x)>{l2norm_backward(x[0], d[0])}; });
  expect_seen(
      check,
      [](const auto& x, const auto& d) {
        using Scalar = ScalarOf<decltype(x)>;
        return Like<decltype(x)>{l2norm_backward(x[0], d[0], Scalar(0))};
      },
      "epsilon");
  expect_seen(
      check,
      [](const auto& x, const auto& d) {
        // x / |x| in place of y.
        using Scalar = ScalarOf<decltype(x)>;
        using std::sqrt;
        auto out = l2norm_backward(x[0], d[0]);
        for (Index t = 0; t < out.rows(); ++t) {
          const Scalar length = x[0].row(t).squaredNorm();
          const Scalar r = Scalar(1) / Scalar(sqrt(Scalar(length + Scalar(1e-6))));
          const Scalar along = x[0].row(t).cwiseProduct(d[0].row(t)).sum();
          out.row(t) += (r * r * r - r / length) * along * x[0].row(t);
        }
        return Like<decltype(x)>{out};
      },
      "the unit vector");
  EXPECT_THROW((void)l2norm_backward<double>(normal(2, 3, 1), normal(3, 2, 1)), Error);
}

template <class Scalar>
Scalar small() {
  return Scalar(1e-5);
}

TEST(PiecesBackward, RmsNorm) {
  const GradientCheck check({normal(5, 6, 1), normal(6, 1, 2)}, [](const auto& x) {
    return Like<decltype(x)>{rms_norm(x[0], vec(x[1]), small<ScalarOf<decltype(x)>>())};
  });
  const auto backward = [](const auto& x, const auto& d) {
    const auto g = rms_norm_backward(x[0], vec(x[1]), small<ScalarOf<decltype(x)>>(), d[0]);
    return Like<decltype(x)>{g.x, g.weight};
  };
  expect_gradients(check, backward);
  expect_seen(
      check,
      [](const auto& x, const auto& d) {
        // Without the mean of n dn: the norm taken as a constant.
        using Scalar = ScalarOf<decltype(x)>;
        const Vector<Scalar> ones = Vector<Scalar>::Ones(6);
        auto out = Like<decltype(x)>{d[0] * vec(x[1]).asDiagonal(), x[1]};
        const Matrix<Scalar> n = rms_norm(x[0], ones, small<Scalar>());
        out[0] = out[0].cwiseProduct(n).cwiseQuotient(x[0]);
        out[1] = d[0].cwiseProduct(n).colwise().sum().transpose();
        return out;
      },
      "the mean");
  EXPECT_THROW(
      (void)rms_norm_backward<double>(normal(2, 3, 1), Vector<double>::Ones(3), 1e-5, normal(3, 2, 1)),
      Error);
}

TEST(PiecesBackward, ZeroCentredNorm) {
  const GradientCheck check({normal(5, 6, 1), normal(6, 1, 2)}, [](const auto& x) {
    return Like<decltype(x)>{rms_norm_zero_centred(x[0], vec(x[1]), small<ScalarOf<decltype(x)>>())};
  });
  expect_gradients(check, [](const auto& x, const auto& d) {
    const auto g = rms_norm_zero_centred_backward(x[0], vec(x[1]), small<ScalarOf<decltype(x)>>(), d[0]);
    return Like<decltype(x)>{g.x, g.weight};
  });
  expect_seen(
      check,
      [](const auto& x, const auto& d) {
        const auto g = rms_norm_backward(x[0], vec(x[1]), small<ScalarOf<decltype(x)>>(), d[0]);
        return Like<decltype(x)>{g.x, g.weight};
      },
      "1 + w");
}

TEST(PiecesBackward, ResidualNorm) {
  const GradientCheck check({normal(5, 6, 1), normal(5, 6, 2), normal(6, 1, 3)}, [](const auto& x) {
    auto y = rms_norm_residual(x[0], x[1], vec(x[2]), small<ScalarOf<decltype(x)>>());
    return Like<decltype(x)>{y.y, y.residual};
  });
  const auto with = [](bool before) {
    return [before](const auto& x, const auto& d) {
      using Scalar = ScalarOf<decltype(x)>;
      const Matrix<Scalar> zero = Matrix<Scalar>::Zero(5, 6);
      const Matrix<Scalar> dy = before ? Matrix<Scalar>(d[0] + d[1]) : d[0];
      const auto g =
          rms_norm_residual_backward(x[0], x[1], vec(x[2]), small<Scalar>(), dy, before ? zero : d[1]);
      return Like<decltype(x)>{g.x, g.x, g.weight};
    };
  };
  expect_gradients(check, with(false));
  expect_seen(check, with(true), "the residual's cotangent before the norm");
}

TEST(PiecesBackward, GatedNormsInBothOrders) {
  const Tensors<double> inputs{normal(5, 6, 1), normal(5, 6, 2), normal(6, 1, 3)};
  const auto norm_first = [](const auto& x, const auto& d) {
    const auto g = rms_norm_gated_backward(x[0], x[1], vec(x[2]), small<ScalarOf<decltype(x)>>(), d[0]);
    return Like<decltype(x)>{g.x, g.z, g.weight};
  };
  const auto gate_first = [](const auto& x, const auto& d) {
    const auto g = rms_norm_of_gated_backward(x[0], x[1], vec(x[2]), small<ScalarOf<decltype(x)>>(), d[0]);
    return Like<decltype(x)>{g.x, g.z, g.weight};
  };
  const GradientCheck gated(inputs, [](const auto& x) {
    return Like<decltype(x)>{rms_norm_gated(x[0], x[1], vec(x[2]), small<ScalarOf<decltype(x)>>())};
  });
  const GradientCheck of_gated(inputs, [](const auto& x) {
    return Like<decltype(x)>{rms_norm_of_gated(x[0], x[1], vec(x[2]), small<ScalarOf<decltype(x)>>())};
  });
  expect_gradients(gated, norm_first);
  expect_gradients(of_gated, gate_first);
  expect_seen(gated, gate_first, "the other order");
  expect_seen(of_gated, norm_first, "the other order");
  expect_seen(
      gated,
      [&](const auto& x, const auto& d) {
        // dx assigned to dz.
        auto out = norm_first(x, d);
        out[1] = out[0];
        return out;
      },
      "dz");
}

/// A convolution of T tokens, width W, 3 channels: x, kernel, bias, state.
template <class Check>
void expect_convolution(Index T, bool activation, const Check& faults) {
  const Index W = 4;
  const GradientCheck check({normal(T, 3, 1), normal(3, W, 2), normal(3, 1, 3), normal(W - 1, 3, 4)},
                            [=](const auto& x) {
                              auto y = short_convolution(x[0], x[1], vec(x[2]), x[3], activation);
                              return Like<decltype(x)>{y.y, y.state};
                            });
  const auto backward = [=](const auto& x, const auto& d) {
    const auto g = short_convolution_backward(x[0], x[1], vec(x[2]), x[3], d[0], d[1], activation);
    return Like<decltype(x)>{g.x, g.kernel, g.bias, g.state};
  };
  expect_gradients(check, backward);
  faults(check, backward);
}

TEST(PiecesBackward, ShortConvolution) {
  for (const Index T : {1, 2, 3, 7}) {
    for (const bool activation : {true, false}) {
      expect_convolution(T, activation, [=](const auto& check, const auto& backward) {
        const auto without_state = [&](const auto& x, const auto& d) {
          auto cut = d;
          cut[1].setZero();
          return backward(x, cut);
        };
        expect_seen(check, without_state, "the cotangent of the state");
        const auto without_pass_through = [&](const auto& x, const auto& d) {
          // The handed-on state takes these columns from the old one where T < W - 1.
          auto out = backward(x, d);
          if (T < 3) out[3].bottomRows(3 - T) -= d[1].topRows(3 - T);
          return out;
        };
        if (T < 3) expect_seen(check, without_pass_through, "the pass through to the old state");
        const auto reversed = [&](const auto& x, const auto& d) {
          auto out = backward(x, d);
          out[1] = out[1].rowwise().reverse().eval();
          return out;
        };
        expect_seen(check, reversed, "the kernel's order");
      });
    }
  }
  const auto absent = short_convolution_backward<double>(normal(5, 3, 1), normal(3, 4, 2), {},
                                                         normal(3, 3, 4), normal(5, 3, 5), {});
  const auto zero = short_convolution_backward<double>(normal(5, 3, 1), normal(3, 4, 2), {}, normal(3, 3, 4),
                                                       normal(5, 3, 5), Matrix<double>::Zero(3, 3));
  EXPECT_EQ(absent.x, zero.x);
  EXPECT_EQ(absent.bias.size(), 0);
  EXPECT_THROW((void)short_convolution_backward<double>(normal(5, 3, 1), normal(3, 4, 2), {}, normal(3, 3, 4),
                                                        normal(4, 3, 5), {}),
               Error);
}

TEST(PiecesBackward, RotaryEmbedding) {
  for (const RotaryPairs pairs : {RotaryPairs::halves, RotaryPairs::interleaved}) {
    const auto tables = [](auto scalar) {
      return rotary_tables<decltype(scalar)>(3, 4, 4, decltype(scalar)(100));
    };
    // Two heads of 6 columns, of which 4 turn.
    const GradientCheck check({normal(4, 12, 1)}, [=](const auto& x) {
      return Like<decltype(x)>{rotate(x[0], tables(ScalarOf<decltype(x)>()), pairs, 2)};
    });
    expect_gradients(check, [=](const auto& x, const auto& d) {
      return Like<decltype(x)>{rotate_backward(d[0], tables(ScalarOf<decltype(x)>()), pairs, 2)};
    });
    expect_seen(
        check,
        [=](const auto& x, const auto& d) {
          return Like<decltype(x)>{rotate(d[0], tables(ScalarOf<decltype(x)>()), pairs, 2)};
        },
        "the angle's sign");
  }
}

TEST(PiecesBackward, Linear) {
  const GradientCheck check({normal(4, 3, 1), normal(5, 3, 2), normal(5, 1, 3)},
                            [](const auto& x) { return Like<decltype(x)>{linear(x[0], x[1], vec(x[2]))}; });
  const auto backward = [](const auto& x, const auto& d) {
    const auto g = linear_backward(x[0], x[1], d[0]);
    return Like<decltype(x)>{g.x, g.weight, g.bias};
  };
  expect_gradients(check, backward);
  expect_seen(
      check,
      [&](const auto& x, const auto& d) {
        auto out = backward(x, d);
        out[2] = d[0].row(0).transpose();
        return out;
      },
      "the bias of the first token");
  EXPECT_THROW((void)linear_backward<double>(normal(4, 3, 1), normal(5, 3, 2), normal(4, 3, 1)), Error);
}

}  // namespace
}  // namespace samestate

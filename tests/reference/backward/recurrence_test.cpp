#include "reference/backward/recurrence.h"

#include <gtest/gtest.h>

#include <limits>

#include "reference/delta_rule.h"
#include "reference/gated_delta_rule.h"
#include "reference/linear_attention.h"
#include "reference/retention.h"
#include "tests/reference/backward/head_tensors.h"

namespace samestate {
namespace {

using test::draw;
using test::Tensors;

const auto kForward = [](auto system) {
  return [](const auto& x) { return recurrent<decltype(system)>(x); };
};

/// The terms of one token's reverse, of which a wrong backward pass loses one.
enum class LostTerm {
  nothing,
  final_state,         ///< D starts from zero
  read,                ///< D += scale q do^T
  scale_of_dq,         ///< dq = S do
  reading_of_old_key,  ///< -R de of dk
  correction_of_D,     ///< -k de^T of dR
  decay_of_D,          ///< D <- dR
  decay_of_R,          ///< dg = <dR, S>
  correction_of_dg,    ///< dg = <D, R>
  beta_of_dv,          ///< dv = du
  error_of_dbeta       ///< dbeta = du . v
};

/// The reverse recurrence written out once more, with every state kept and one term lost.
template <class System, class Scalar>
HeadGradients<Scalar> plain_backward(const Sequence<Scalar>& x, const HeadCotangents<Scalar>& d,
                                     LostTerm lost) {
  using std::exp;
  std::vector<Matrix<Scalar>> states{x.initial_state};
  for (Index t = 0; t < x.tokens(); ++t)
    states.push_back(recurrent<System>(x.slice(t, t + 1, states.back())).state);
  HeadGradients<Scalar> out = zero_gradients<System>(x);
  Matrix<Scalar> D = d.state;
  if (lost == LostTerm::final_state) D.setZero();
  for (Index t = x.tokens() - 1; t >= 0; --t) {
    const Matrix<Scalar>& before = states[static_cast<std::size_t>(t)];
    const Matrix<Scalar>& after = states[static_cast<std::size_t>(t + 1)];
    const Scalar a = System::gated ? Scalar(exp(x.g(t))) : Scalar(1);
    const Scalar b = System::delta ? x.beta(t) : Scalar(1);
    const Matrix<Scalar> R = a * before;
    const Matrix<Scalar> k = x.k.row(t), q = x.q.row(t), v = x.v.row(t), d_o = d.o.row(t);
    Matrix<Scalar> e = v;
    if (System::delta) e -= k * R;
    if (lost != LostTerm::read) D += x.scale * q.transpose() * d_o;
    out.q.row(t) = (lost == LostTerm::scale_of_dq ? Scalar(1) : x.scale) * d_o * after.transpose();
    const Matrix<Scalar> du = k * D;
    const Matrix<Scalar> de = b * du;
    out.v.row(t) = lost == LostTerm::beta_of_dv ? du : de;
    out.k.row(t) = b * e * D.transpose();
    Matrix<Scalar> dR = D;
    if (System::delta) {
      out.beta(t) = (lost == LostTerm::error_of_dbeta ? v : e).cwiseProduct(du).sum();
      if (lost != LostTerm::reading_of_old_key) out.k.row(t) -= de * R.transpose();
      if (lost != LostTerm::correction_of_D) dR -= k.transpose() * de;
    }
    if (System::gated) {
      out.g(t) = (lost == LostTerm::correction_of_dg ? D : dR)
                     .cwiseProduct(lost == LostTerm::decay_of_R ? before : R)
                     .sum();
    }
    D = lost == LostTerm::decay_of_D ? dR : Matrix<Scalar>(a * dR);
  }
  out.initial_state = D;
  return out;
}

template <class System>
std::vector<LostTerm> lost_terms() {
  std::vector<LostTerm> out{LostTerm::final_state, LostTerm::read, LostTerm::scale_of_dq};
  if (System::gated) out.insert(out.end(), {LostTerm::decay_of_D, LostTerm::decay_of_R});
  if (System::delta)
    out.insert(out.end(), {LostTerm::reading_of_old_key, LostTerm::correction_of_D, LostTerm::beta_of_dv,
                           LostTerm::error_of_dbeta});
  if (System::gated && System::delta) out.push_back(LostTerm::correction_of_dg);
  return out;
}

template <class System>
class RecurrentBackward : public testing::Test {
 protected:
  static Sequence<double> sequence(Index T = 11, unsigned seed = 21) {
    return draw(T, 5, 3, seed, System::gated, System::delta);
  }
  static auto check() {
    return test::GradientCheck(test::head_tensors<System>(sequence()),
                               test::head_forward<System>(kForward(System{})));
  }
  static HeadCotangents<double> cotangents(Index T) { return {test::normal(T, 3, 5), test::normal(5, 3, 6)}; }
  static void expect_equal(const HeadGradients<double>& is, const HeadGradients<double>& expected) {
    EXPECT_EQ(is.q, expected.q);
    EXPECT_EQ(is.k, expected.k);
    EXPECT_EQ(is.v, expected.v);
    EXPECT_EQ(is.g, expected.g);
    EXPECT_EQ(is.beta, expected.beta);
    EXPECT_EQ(is.initial_state, expected.initial_state);
  }
};
using BackwardSystems = testing::Types<GatedDeltaRule, DeltaRule, Retention, LinearAttention>;
TYPED_TEST_SUITE(RecurrentBackward, BackwardSystems);

TYPED_TEST(RecurrentBackward, IsTheDerivativeOfTheForwardPass) {
  test::expect_gradients(this->check(), test::head_backward<TypeParam>([](const auto& x, const auto& d) {
                           return recurrent_backward<TypeParam>(x, d);
                         }));
}

TYPED_TEST(RecurrentBackward, ALostTermIsSeen) {
  const auto check = this->check();
  const auto losing = [](LostTerm lost) {
    return test::head_backward<TypeParam>(
        [lost](const auto& x, const auto& d) { return plain_backward<TypeParam>(x, d, lost); });
  };
  test::expect_gradients(check, losing(LostTerm::nothing));
  for (const LostTerm lost : lost_terms<TypeParam>())
    test::expect_seen(check, losing(lost), std::to_string(static_cast<int>(lost)).c_str());
}

TYPED_TEST(RecurrentBackward, SplitAnywhereIsTheWholeBitForBit) {
  const Index T = 23;
  const Sequence<double> x = this->sequence(T);
  const HeadCotangents<double> d = this->cotangents(T);
  const HeadGradients<double> whole = recurrent_backward<TypeParam>(x, d);
  for (const Index cut : {Index{0}, Index{1}, Index{9}, T}) {
    const Sequence<double> first = x.slice(0, cut, x.initial_state);
    const HeadGradients<double> later = recurrent_backward<TypeParam>(
        x.slice(cut, T, recurrent<TypeParam>(first).state), {d.o.bottomRows(T - cut), d.state});
    const HeadGradients<double> earlier =
        recurrent_backward<TypeParam>(first, {d.o.topRows(cut), later.initial_state});
    // The forward pass of `recurrent` fuses its sums, so the state that it hands on has other last bits.
    EXPECT_LE(test::relative(later.k, whole.k.bottomRows(T - cut)), 2e-15) << cut;
    EXPECT_LE(test::relative(earlier.k, whole.k.topRows(cut)), 2e-15) << cut;
    EXPECT_LE(test::relative(earlier.initial_state, whole.initial_state), 2e-15) << cut;
  }
}

TYPED_TEST(RecurrentBackward, CausalityIsReversed) {
  const Index T = 12;
  const Index c = 7;
  const Sequence<double> x = this->sequence(T);
  HeadCotangents<double> d = this->cotangents(T);
  const HeadGradients<double> before = recurrent_backward<TypeParam>(x, d);
  d.o.topRows(c).array() += 3.0;
  const HeadGradients<double> after = recurrent_backward<TypeParam>(x, d);
  EXPECT_EQ(after.q.bottomRows(T - c), before.q.bottomRows(T - c));
  EXPECT_EQ(after.k.bottomRows(T - c), before.k.bottomRows(T - c));
  EXPECT_EQ(after.v.bottomRows(T - c), before.v.bottomRows(T - c));
  EXPECT_NE(after.k.row(c - 1), before.k.row(c - 1));
}

TYPED_TEST(RecurrentBackward, AbsentCotangentOfTheStateIsZero) {
  const Sequence<double> x = this->sequence();
  HeadCotangents<double> d = this->cotangents(11);
  d.state.setZero();
  this->expect_equal(recurrent_backward<TypeParam>(x, {d.o, {}}), recurrent_backward<TypeParam>(x, d));
}

TYPED_TEST(RecurrentBackward, NoTokensPassTheCotangentOfTheState) {
  const Sequence<double> x = this->sequence(0);
  const HeadCotangents<double> d = this->cotangents(0);
  EXPECT_EQ(recurrent_backward<TypeParam>(x, d).initial_state, d.state);
  EXPECT_EQ(recurrent_backward<TypeParam>(x, d).q.rows(), 0);
}

TYPED_TEST(RecurrentBackward, PackedSequencesAreThoseAlone) {
  const Index T = 12;
  const Sequence<double> x = this->sequence(T);
  const HeadCotangents<double> d = this->cotangents(T);
  const std::vector<Matrix<double>> states{x.initial_state, 2 * x.initial_state, 3 * x.initial_state};
  const std::vector<Matrix<double>> d_states{d.state, {}, -d.state};
  const auto run = [](const auto& s, const auto& c) { return recurrent_backward<TypeParam>(s, c); };
  // Rows 10 and 11 belong to no sequence.
  const PackedGradients<double> all =
      packed_backward<TypeParam>(x, {0, 4, 4, 10}, states, d.o, d_states, run);
  ASSERT_EQ(all.initial_states.size(), 3U);
  const HeadGradients<double> last =
      run(x.slice(4, 10, states[2]), HeadCotangents<double>{d.o.middleRows(4, 6), d_states[2]});
  EXPECT_EQ(all.tokens.k.middleRows(4, 6), last.k);
  EXPECT_EQ(all.initial_states[2], last.initial_state);
  EXPECT_EQ(all.initial_states[1], Matrix<double>::Zero(5, 3));
  EXPECT_EQ(all.tokens.q.bottomRows(2), Matrix<double>::Zero(2, 5));
  EXPECT_EQ(all.tokens.k.bottomRows(2), Matrix<double>::Zero(2, 5));
  EXPECT_EQ(all.tokens.v.bottomRows(2), Matrix<double>::Zero(2, 3));
  EXPECT_GT(all.tokens.v.topRows(10).cwiseAbs().minCoeff(), 0.0);
  EXPECT_THROW((void)packed_backward<TypeParam>(x, {0, 4, 3, 10}, states, d.o, d_states, run), Error);
  EXPECT_THROW((void)packed_backward<TypeParam>(x, {0, 4, 8, 13}, states, d.o, d_states, run), Error);
  EXPECT_THROW((void)packed_backward<TypeParam>(x, {0, 4, 10}, states, d.o, d_states, run), Error);
}

TYPED_TEST(RecurrentBackward, IntervalsEncloseTheFiftyDigitValue) {
  const Sequence<double> x = this->sequence(9);
  const HeadCotangents<double> d = this->cotangents(9);
  const auto enclosure =
      recurrent_backward<TypeParam>(x.template cast<Interval>(), d.template cast<Interval>());
  const auto digits =
      recurrent_backward<TypeParam>(x.template cast<Decimal100>(), d.template cast<Decimal100>());
  for (Index i = 0; i < enclosure.k.size(); ++i) {
    EXPECT_LE(Decimal100(lower(enclosure.k.data()[i])), digits.k.data()[i]);
    EXPECT_GE(Decimal100(upper(enclosure.k.data()[i])), digits.k.data()[i]);
  }
}

TEST(RecurrentBackward, OneTokenByHand) {
  // S0 = 2, a = 1/2, k = 3, v = 5, beta = 1/4, q = 7, scale 1: R = 1, e = 2, u = 1/2, S = 5/2, o = 35/2.
  Sequence<double> x = draw(1, 1, 1);
  x.q.setConstant(7);
  x.k.setConstant(3);
  x.v.setConstant(5);
  x.g.setConstant(std::log(0.5));
  x.beta.setConstant(0.25);
  x.scale = 1;
  x.initial_state.setConstant(2);
  const HeadGradients<double> d = recurrent_backward<GatedDeltaRule>(
      x, {Matrix<double>::Constant(1, 1, 1), Matrix<double>::Constant(1, 1, 3)});
  // D = 3 + 7 = 10, dq = 5/2, du = 30, dbeta = 60, de = 15/2, dk = 10/2 - 15/2, dR = 10 - 45/2, dg = dR.
  EXPECT_EQ(d.q(0, 0), 2.5);
  EXPECT_EQ(d.beta(0), 60.0);
  EXPECT_EQ(d.v(0, 0), 7.5);
  EXPECT_EQ(d.k(0, 0), -2.5);
  EXPECT_EQ(d.g(0), -12.5);
  EXPECT_EQ(d.initial_state(0, 0), -6.25);
}

// A reset passes nothing back, and its own dg is 0; both bit for bit.
TEST(RecurrentBackward, NothingPassesAReset) {
  Sequence<double> x = draw(10, 4, 3);
  x.g(6) = -std::numeric_limits<double>::infinity();
  HeadCotangents<double> d{test::normal(10, 3, 5), test::normal(4, 3, 6)};
  d.o.topRows(6).setZero();
  const HeadGradients<double> g = recurrent_backward<GatedDeltaRule>(x, d);
  EXPECT_EQ(g.g(6), 0.0);
  EXPECT_EQ(g.initial_state, Matrix<double>::Zero(4, 3));
  EXPECT_EQ(g.k.topRows(6), Matrix<double>::Zero(6, 4));
  EXPECT_EQ(g.v.topRows(6), Matrix<double>::Zero(6, 3));
  EXPECT_EQ(g.beta.head(6), Vector<double>::Zero(6));
  EXPECT_GT(g.k.bottomRows(4).cwiseAbs().minCoeff(), 0.0);
}

// A neutral token changes no other gradient bit for bit, and its dg is that of the token after it and not 0.
TEST(RecurrentBackward, ANeutralTokenHasTheDecayGradientOfItsSuccessor) {
  const Sequence<double> x = draw(10, 4, 3);
  const HeadCotangents<double> d{test::normal(10, 3, 5), test::normal(4, 3, 6)};
  Sequence<double> with = draw(11, 4, 3);
  HeadCotangents<double> d_with{Matrix<double>::Zero(11, 3), d.state};
  const Index at = 6;
  for (Index t = 0; t < 10; ++t) {
    const Index to = t < at ? t : t + 1;
    with.q.row(to) = x.q.row(t);
    with.k.row(to) = x.k.row(t);
    with.v.row(to) = x.v.row(t);
    with.g(to) = x.g(t);
    with.beta(to) = x.beta(t);
    d_with.o.row(to) = d.o.row(t);
  }
  with.q.row(at).setZero();
  with.k.row(at).setZero();
  with.v.row(at).setZero();
  with.g(at) = with.beta(at) = 0;
  with.initial_state = x.initial_state;
  const HeadGradients<double> without = recurrent_backward<GatedDeltaRule>(x, d);
  const HeadGradients<double> g = recurrent_backward<GatedDeltaRule>(with, d_with);
  for (Index t = 0; t < 10; ++t) {
    const Index to = t < at ? t : t + 1;
    EXPECT_EQ(g.q.row(to), without.q.row(t));
    EXPECT_EQ(g.k.row(to), without.k.row(t));
    EXPECT_EQ(g.v.row(to), without.v.row(t));
    EXPECT_EQ(g.g(to), without.g(t));
    EXPECT_EQ(g.beta(to), without.beta(t));
  }
  EXPECT_EQ(g.initial_state, without.initial_state);
  EXPECT_EQ(g.q.row(at).cwiseAbs().maxCoeff() + g.k.row(at).cwiseAbs().maxCoeff() + std::abs(g.beta(at)),
            0.0);
  EXPECT_NEAR(g.g(at), g.g(at + 1), 1e-15 * g.g.cwiseAbs().maxCoeff());
  EXPECT_NE(g.g(at), 0.0);
}

TEST(RecurrentBackward, RefusesCotangentsOfOtherShapes) {
  const Sequence<double> x = draw(4, 3, 2);
  EXPECT_THROW((void)recurrent_backward<GatedDeltaRule>(x, {Matrix<double>::Zero(3, 2), {}}), Error);
  EXPECT_THROW(
      (void)recurrent_backward<GatedDeltaRule>(x, {Matrix<double>::Zero(4, 2), Matrix<double>::Zero(2, 3)}),
      Error);
}

}  // namespace
}  // namespace samestate

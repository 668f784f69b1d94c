#include "oracles/bounds/repeated_roundings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "oracles/contracts.h"
#include "oracles/judge.h"
#include "oracles/rounding.h"
#include "oracles/systems/family.h"
#include "tests/oracles/bounds/heads.h"

namespace samestate {
namespace {

using Doubles = Matrix<double>;

/// Pairs of key and value, each of them several times.
Sequence<double> memorised(unsigned seed, Index T, Index pairs, Index dk, Index dv) {
  Sequence<double> x = random_head(seed, T, dk, dv);
  std::mt19937 random(seed);
  for (Index t = pairs; t < T; ++t) {
    const auto of = static_cast<Index>(random() % static_cast<unsigned>(pairs));
    x.k.row(t) = x.k.row(of).eval();
    x.v.row(t) = x.v.row(of).eval();
  }
  x.q = x.k;
  x.g.setZero();
  x.beta.setOnes();
  x.initial_state.setZero();
  return x;
}

Doubles round(const Doubles& x, Format format) {
  return x.unaryExpr([format](double v) { return round_to(v, format); });
}

/// The chunked form in float64 with the operands of `c` rounded: V', e^{G_C - G} V', k, e^{G_C - G} k, P, beta V.
Trajectory<double> rounded(const Sequence<double>& x, Index chunk, const Contract& c, bool delta) {
  Trajectory<double> out{Doubles::Zero(x.tokens(), x.value_width()), {}, x.initial_state};
  for (Index begin = 0; begin < x.tokens(); begin += chunk) {
    const Index L = std::min(chunk, x.tokens() - begin);
    Vector<double> G = x.g.segment(begin, L);
    for (Index i = 1; i < L; ++i) G(i) += G(i - 1);
    Doubles E = Doubles::Zero(L, L);
    for (Index i = 0; i < L; ++i) {
      for (Index j = 0; j <= i; ++j) E(i, j) = std::exp(G(i) - G(j));
    }
    const Vector<double> start = G.array().exp(), end = E.row(L - 1);
    const Doubles Q = x.q.middleRows(begin, L), K = x.k.middleRows(begin, L), RK = round(K, c.qk);
    const Vector<double> beta = x.beta.segment(begin, L);
    Doubles V = round(beta.asDiagonal() * x.v.middleRows(begin, L), delta ? c.beta_v : Format::fp64);
    if (delta) {
      Doubles A = (beta.asDiagonal() * (K * K.transpose())).cwiseProduct(E);
      A.diagonal().setZero();
      V -= beta.asDiagonal() * (start.asDiagonal() * (K * out.state));
      V = (Doubles::Identity(L, L) + A).triangularView<Eigen::UnitLower>().solve(V).eval();
    }
    const Doubles P = round((Q * RK.transpose()).cwiseProduct(E), c.P);
    out.o.middleRows(begin, L) = x.scale * (start.asDiagonal() * (Q * out.state) + P * round(V, c.v_new));
    const Doubles written = c.k_decayed == Format::none
                                ? Doubles(RK.transpose() * round(end.asDiagonal() * V, c.v_decayed))
                                : Doubles(round(end.asDiagonal() * K, c.k_decayed).transpose() * V);
    out.state = (start(L - 1) * out.state + written).eval();
  }
  return out;
}

struct ReadPoint {
  const char* contract;
  bool delta = false;
  bool reads_q = false;  ///< the prediction holds roundings of q, which `rounded` leaves alone
};

struct Sizes {
  double error = 0.0, repeated = 0.0, apart = 0.0, state = 0.0, state_repeated = 0.0;
};

/// Mean squares over heads: of the errors, and as predicted with and without what repeats.
Sizes measured(const ReadPoint& point, Index chunk, const std::function<void(Sequence<double>&)>& change) {
  const Contract& c = contract_named(point.contract);
  const Family& family = family_named(point.delta ? "delta_rule" : "linear_attention");
  Sizes sizes;
  for (unsigned seed = 0; seed < 40; ++seed) {
    Sequence<double> x = memorised(seed, 64, 16, 32, 16);
    change(x);
    const Trajectory<double> actual = rounded(x, chunk, c, point.delta);
    const HeadOracle oracle = oracle_of(x, whole(64, chunk), c, family, false);
    EXPECT_EQ(oracle.policy.mode, Mode::prob);
    const RepeatedRoundings repeated = repeated_roundings(x, whole(64, chunk), c, point.delta);
    sizes.error += (actual.o - oracle.exact.o).squaredNorm();
    sizes.apart += oracle.rms.squaredNorm();
    sizes.repeated += oracle.rms.squaredNorm() + repeated.rows.squaredNorm();
    sizes.state += (actual.state - oracle.exact.state).squaredNorm();
    sizes.state_repeated += oracle.state_rms.squaredNorm() + repeated.state.squaredNorm();
  }
  return sizes;
}

const auto kUnchanged = [](Sequence<double>&) {};

// The mean mantissa has 0.73 of the deviation that is counted; pairs of four tokens have sqrt(4) times the
// error of those of one.
TEST(RepeatedRoundings, PredictWhatRoundedOperandsDo) {
  const ReadPoint points[] = {{"fp32+v_decayed:bf16+v_new:bf16"},
                              {"fp32+v_decayed:bf16"},
                              {"fp32+k_decayed:bf16"},
                              {"fp32+qk:tf32", false, true}};
  for (const ReadPoint& point : points) {
    for (const Index chunk : {1, 8}) {
      const Sizes s = measured(point, chunk, kUnchanged);
      EXPECT_LT(std::sqrt(s.error / s.repeated), 1.0) << point.contract << " " << chunk;
      EXPECT_GT(std::sqrt(s.error / s.repeated), 0.4) << point.contract << " " << chunk;
      EXPECT_GT(std::sqrt(s.error / s.apart), point.reads_q ? 0.4 : 1.05) << point.contract << " " << chunk;
      EXPECT_LT(std::sqrt(s.state / s.state_repeated), 1.0) << point.contract << " " << chunk;
      EXPECT_GT(std::sqrt(s.state / s.state_repeated), 0.4) << point.contract << " " << chunk;
    }
  }
}

TEST(RepeatedRoundings, OfEqualScoresAddUp) {
  // Not q = k, whose products are about one, which bf16 holds.
  const Sizes s =
      measured({"fp32+P:bf16"}, 64, [](Sequence<double>& x) { x.q = random_head(99, 64, 32, 16).q; });
  EXPECT_LT(std::sqrt(s.error / s.repeated), 1.0);
  EXPECT_GT(std::sqrt(s.error / s.repeated), 0.4);
  EXPECT_GT(std::sqrt(s.error / s.apart), 1.05);
}

// Strengths of one: the first token of a pair writes it and the others find it there, so that they take rather than add.
TEST(RepeatedRoundings, OfTheDeltaRuleHoldToo) {
  const Sizes s =
      measured({"fp32+beta_v:bf16", true}, 8, [](Sequence<double>& x) { x.beta.setConstant(0.25); });
  EXPECT_LT(std::sqrt(s.error / s.repeated), 1.0);
  EXPECT_GT(std::sqrt(s.error / s.repeated), 0.4);
  EXPECT_LT(std::sqrt(s.state / s.state_repeated), 1.0);
}

// Gates that are the same at every token give operands of one place in a chunk the same numbers in each.
TEST(RepeatedRoundings, GoByWhatIsRoundedNotByTheToken) {
  Sequence<double> x = memorised(3, 64, 2, 32, 16);
  const Contract c = contract_named("fp32+v_decayed:bf16");
  x.g.setConstant(-0.125);
  EXPECT_GT(repeated_roundings(x, whole(64, 4), c, false).rows.tail(32).minCoeff(), 0.0);
  for (Index t = 0; t < 64; ++t) x.g(t) = -0.01 * std::sqrt(static_cast<double>(t) + 2);
  // e^{G_C - G} differs from token to token, but for the last of each chunk, whose factor is one.
  const RepeatedRoundings last = repeated_roundings(x, whole(64, 4), c, false);
  x.v = x.v.eval();
  for (Index t = 3; t < 64; t += 4) x.v.row(t) *= 1.0 + 1e-3 * static_cast<double>(t);
  EXPECT_GT(last.rows.maxCoeff(), 0.0);
  EXPECT_EQ(repeated_roundings(x, whole(64, 4), c, false).rows.maxCoeff(), 0.0);
}

TEST(RepeatedRoundings, AreNoneWhereNothingRepeatsOrNothingIsRounded) {
  const Contract rounds = contract_named("fp32+v_decayed:bf16+v_new:bf16+P:bf16+qk:tf32");
  const auto most = [&](const Sequence<double>& x, const Contract& c) {
    return repeated_roundings(x, whole(x.tokens(), 8), c, false).rows.maxCoeff();
  };
  const Sequence<double> pairs = memorised(1, 40, 8, 16, 8);
  EXPECT_GT(most(pairs, rounds), 0.0);
  EXPECT_EQ(most(pairs, contract_named("fp32")), 0.0);
  EXPECT_EQ(most(random_head(1, 40, 16, 8), rounds), 0.0);
  Sequence<double> held = pairs;
  held.v = round(held.v, Format::bf16);
  EXPECT_EQ(most(held, contract_named("fp32+v_decayed:bf16+v_new:bf16")), 0.0) << "values that bf16 holds";
  Sequence<double> zeros = random_head(1, 40, 16, 8);
  for (Index t = 0; t < 40; t += 2) zeros.k.row(t).setZero(), zeros.v.row(t).setZero();
  EXPECT_EQ(most(zeros, rounds), 0.0) << "zeros, which every format holds";
}

// m tokens of one pair, one by one: each row reads the same error of v as often as it was written.
TEST(RepeatedRoundings, AreMTimesOneRounding) {
  Sequence<double> x = memorised(5, 12, 1, 8, 4);
  const double u = unit_roundoff(Format::bf16) / std::sqrt(3.0);
  const RepeatedRoundings r =
      repeated_roundings(x, whole(12, 1), contract_named("fp32+v_decayed:bf16+v_new:bf16"), false);
  const double key = x.k.row(0).squaredNorm();
  for (Index i = 0; i < 12; ++i) {
    EXPECT_NEAR(r.rows(i) / (static_cast<double>(i + 1) * x.scale * key * u * x.v.row(0).norm()), 1.0, 1e-9);
  }
  EXPECT_NEAR(r.state.norm() / (12 * std::sqrt(key) * u * x.v.row(0).norm()), 1.0, 1e-9);
}

// Over segments as over chunks, and not over what a reset forgets.
TEST(RepeatedRoundings, GoOnFromSegmentToSegmentUntilAReset) {
  Sequence<double> x = memorised(7, 24, 3, 16, 8);
  const Contract c = contract_named("fp32+v_decayed:bf16+v_new:bf16");
  const RepeatedRoundings one = repeated_roundings(x, whole(24, 4), c, false);
  const RepeatedRoundings two = repeated_roundings(x, split(24, 4, 8), c, false);
  EXPECT_NEAR((one.rows - two.rows).norm(), 0.0, 1e-12);
  x.g(12) = -std::numeric_limits<double>::infinity();
  const RepeatedRoundings reset = repeated_roundings(x, whole(24, 4), c, false);
  EXPECT_TRUE(reset.rows.allFinite());
  EXPECT_LT(reset.rows.tail(12).norm(), one.rows.tail(12).norm());
}

}  // namespace
}  // namespace samestate

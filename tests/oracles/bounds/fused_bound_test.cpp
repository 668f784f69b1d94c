/// The bounds of the points that fused kernels have: the residual, the inverse from 8 x 8 blocks, factors of
/// the norm and of the scale, the read of the old state.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "oracles/bounds/chunked.h"
#include "oracles/bounds/inverse.h"
#include "oracles/bounds/recurrent.h"
#include "oracles/contracts.h"
#include "oracles/limits.h"
#include "oracles/rounding.h"
#include "reference/gated_delta_rule.h"
#include "reference/linear_attention.h"
#include "tests/oracles/bounds/heads.h"

namespace samestate {
namespace {

using Mat = Matrix<float>;
constexpr Structure kFusedDelta{true};

Mat rounded(const Mat& x, Format format) {
  return x.unaryExpr([format](float v) { return round_to(v, format); });
}

/// The faults that a test plants into the simulated kernel.
struct PlantedPoint {
  bool no_decay_in_residual = false, no_factor_in_residual = false, beta_in_T = false;
};

struct Result {
  Mat o, state;
};

/// T = (I + A)^-1 from 8 x 8 blocks, merges rounded.
void invert(const Mat& A, Mat& T, Index first, Index size, Format operand) {
  if (size <= 8) {
    for (Index i = 1; i < size; ++i) {
      const Mat above = T.block(first, first, i, i);
      T.block(first + i, first, 1, i) = -A.block(first + i, first, 1, i) * above;
    }
    return;
  }
  Index half = 8;
  while (2 * half < size) half *= 2;
  const Index rest = size - half, middle = first + half;
  invert(A, T, first, half, operand);
  invert(A, T, middle, rest, operand);
  const Mat left = rounded(T.block(middle, middle, rest, rest), operand) *
                   rounded(A.block(middle, first, rest, half), operand);
  T.block(middle, first, rest, half) =
      -(rounded(left, operand) * rounded(T.block(first, first, half, half), operand));
}

/// The fused chunked form in fp32 with the contract's roundings, written for this test. With `norm`, q and k come unnormalised and the factors multiply sums.
Result fused_chunks(const Sequence<double>& given, const Contract& c, Index chunk, bool norm,
                    const PlantedPoint& planted = {}) {
  const Sequence<float> x = given.cast<float>();
  Result out{Mat(x.tokens(), x.value_width()), x.initial_state};
  Mat& S = out.state;
  const auto factors = [&](const Mat& m) -> Vector<float> {
    if (!norm) return Vector<float>::Ones(m.rows());
    return m.rowwise().squaredNorm().unaryExpr([](float s) { return 1.0F / std::sqrt(s + 1e-6F); });
  };
  for (Index begin = 0; begin < x.tokens(); begin += chunk) {
    const Index L = std::min(chunk, x.tokens() - begin);
    const Mat Q = x.q.middleRows(begin, L), K = x.k.middleRows(begin, L), V = x.v.middleRows(begin, L);
    const Vector<float> beta = x.beta.segment(begin, L), rq = factors(Q), rk = factors(K);
    Vector<float> G = x.g.segment(begin, L);
    for (Index d = 1; d < L; d *= 2) {
      for (Index i = L - 1; i >= d; --i) G(i) += G(i - d);
    }
    const Mat KK = K * K.transpose(), QK = Q * K.transpose();
    Mat A = Mat::Zero(L, L), P = Mat::Zero(L, L);
    for (Index i = 0; i < L; ++i) {
      for (Index j = 0; j <= i; ++j) {
        const float e = std::exp(G(i) - G(j));
        if (j < i) A(i, j) = beta(i) * KK(i, j) * e * rk(i) * rk(j);
        P(i, j) = QK(i, j) * e * rq(i) * rk(j) * x.scale;
      }
    }
    Mat T = Mat::Identity(L, L);
    invert(A, T, 0, L, c.inverse_operand);
    if (planted.beta_in_T) T = (T * beta.asDiagonal()).eval();
    T = rounded(T, c.T);
    const Mat operand = rounded(S, c.state_operand);
    Mat R = K * operand, O = Q * operand;
    for (Index i = 0; i < L; ++i) {
      const float b = planted.beta_in_T ? 1.0F : beta(i);
      const float e = planted.no_decay_in_residual ? 1.0F : std::exp(G(i));
      const float r = planted.no_factor_in_residual ? 1.0F : rk(i);
      R.row(i) = b * V.row(i) - b * e * r * R.row(i);
      O.row(i) *= x.scale * std::exp(G(i)) * rq(i);
    }
    const Mat V_new = T * rounded(R, c.residual);
    O += rounded(P, c.P) * rounded(V_new, c.v_new);
    out.o.middleRows(begin, L) = rounded(O, c.output);
    Mat D = V_new;
    for (Index j = 0; j < L; ++j) D.row(j) *= std::exp(G(L - 1) - G(j)) * rk(j);
    S = std::exp(G(L - 1)) * S + K.transpose() * rounded(D, c.v_decayed);
  }
  return out;
}

/// Decode from the old state.
Result old_read_steps(const Sequence<double>& given, const Contract& c, bool own_write = true) {
  const Sequence<float> x = given.cast<float>();
  Result out{Mat(x.tokens(), x.value_width()), rounded(x.initial_state, c.state)};
  Mat& S = out.state;
  for (Index t = 0; t < x.tokens(); ++t) {
    const float a = std::exp(x.g(t));
    const Mat u = x.beta(t) * (x.v.row(t) - a * (x.k.row(t) * S));
    const float key = own_write ? x.q.row(t).dot(x.k.row(t)) : 0.0F;
    out.o.row(t) = rounded(x.scale * (a * (x.q.row(t) * S) + key * u), c.output);
    S = rounded(a * S + x.k.row(t).transpose() * u, c.state);
  }
  return out;
}

/// Largest error over tolerance of the rows of o and of the state.
double ratio(const Result& result, const Sequence<double>& x, const Bound& bound, double lambda,
             double state_factor) {
  const Trajectory<double> exact = recurrent<GatedDeltaRule>(x);
  double worst = (result.state.cast<double>() - exact.state).norm() / bound.state_tolerance(state_factor);
  for (Index t = 0; t < x.tokens(); ++t) {
    const double error = (result.o.row(t).cast<double>() - exact.o.row(t)).norm();
    worst = std::max(worst, error / bound.row_tolerance(t, lambda));
  }
  return worst;
}

Sequence<double> in_format(Sequence<double> x, Format format) {
  x = x.cast<float>().cast<double>();
  for (Matrix<double>* m : {&x.q, &x.k, &x.v}) {
    *m = m->unaryExpr([format](double v) { return round_to(v, format); }).eval();
  }
  return x;
}

/// The exact sequence that a normalising kernel is judged against.
Sequence<double> normalised(Sequence<double> x) {
  for (Matrix<double>* m : {&x.q, &x.k}) {
    for (Index t = 0; t < m->rows(); ++t) m->row(t) /= std::sqrt(m->row(t).squaredNorm() + 1e-6);
  }
  return x;
}

struct FusedRule {
  const char* name;
  std::function<void(Sequence<double>&)> change;
};
const FusedRule kHeads[] = {
    {"ordinary", [](Sequence<double>&) {}},
    {"no decay", [](Sequence<double>& x) { x.g.setZero(); }},
    {"strong decay", [](Sequence<double>& x) { x.g *= 100; }},
    {"beta to 2", [](Sequence<double>& x) { x.beta = x.beta.array() / 2 + 1.5; }},
    {"small beta", [](Sequence<double>& x) { x.beta *= 1e-3; }},
    {"near keys",
     [](Sequence<double>& x) {
       for (Index t = 1; t < x.tokens(); ++t) x.k.row(t) = x.k.row(0) + 0.01 * x.k.row(t);
     }},
};

TEST(FusedBound, CoversTheFusedKernelInEveryMode) {
  double largest = 0.0;
  for (const char* name : {"bf16_fused", "tf32_fused", "fp32_fused"}) {
    const Contract& c = contract_named(name);
    for (const FusedRule& family : kHeads) {
      for (unsigned seed = 0; seed < 12; ++seed) {
        Sequence<double> x = random_head(seed, 70 + 11 * seed, 8 + 4 * (seed % 3), 6);
        family.change(x);
        x = in_format(x, c.qk == Format::tf32 ? Format::tf32 : c.input);
        const bool norm = seed % 2 == 1;
        const Sequence<double> exact = norm ? normalised(x) : x;
        const Index chunk = seed % 4 < 2 ? 64 : 20;
        const Result result = fused_chunks(x, c, chunk, norm);
        for (const Mode mode : {Mode::det, Mode::prob, Mode::semi}) {
          const double e = norm ? l2norm_error(mode, x.key_width()) : 0.0;
          const Bound bound = bound_chunked(exact, c, kFusedDelta, mode, chunk, nullptr, e);
          const bool hard = mode == Mode::det;
          const double r = ratio(result, exact, bound, hard ? 1.0 : 5.0, hard ? 1.0 : 4.0);
          EXPECT_LT(r, 1.0) << name << ", " << family.name << ", seed " << seed << ", mode "
                            << static_cast<int>(mode);
          if (mode == Mode::prob) largest = std::max(largest, r);
        }
      }
    }
  }
  EXPECT_GT(largest, 0.3) << "a bound that nothing comes near bounds nothing";
  RecordProperty("largest", std::to_string(largest));
}

TEST(FusedBound, LogicErrorsLeaveItFarBehind) {
  const Contract& c = contract_named("fp32_fused");
  const Sequence<double> x = in_format(random_head(3, 100, 12, 6), Format::fp32);
  const Bound bound = bound_chunked(x, c, kFusedDelta, Mode::det, 64);
  EXPECT_LT(ratio(fused_chunks(x, c, 64, false), x, bound, 1.0, 1.0), 1.0);
  EXPECT_GT(ratio(fused_chunks(x, c, 64, false, {.no_decay_in_residual = true}), x, bound, 1.0, 1.0), 100.0);
  Sequence<double> longer = x;
  longer.k *= 1.5;
  const Sequence<double> exact = normalised(longer);
  const Bound of_norm =
      bound_chunked(exact, c, kFusedDelta, Mode::det, 64, nullptr, l2norm_error(Mode::det, 12));
  EXPECT_LT(ratio(fused_chunks(longer, c, 64, true), exact, of_norm, 1.0, 1.0), 1.0);
  EXPECT_GT(
      ratio(fused_chunks(longer, c, 64, true, {.no_factor_in_residual = true}), exact, of_norm, 1.0, 1.0),
      100.0);
}

TEST(FusedBound, AnUndeclaredRoundingExceedsIt) {
  const Contract& declared = contract_named("fp32_fused");
  const Sequence<double> x = in_format(random_head(5, 128, 16, 8), Format::bf16);
  const Bound bound = bound_chunked(x, declared, kFusedDelta, Mode::prob, 64);
  for (Format Contract::*point :
       {&Contract::residual, &Contract::T, &Contract::state_operand, &Contract::v_new, &Contract::v_decayed,
        &Contract::P, &Contract::inverse_operand, &Contract::output}) {
    Contract rounds = declared;
    rounds.*point = Format::bf16;
    EXPECT_GT(ratio(fused_chunks(x, rounds, 64, false), x, bound, 5.0, 4.0), 10.0);
  }
}

// The step that each declared point adds: without it the bound is smaller, with it nothing else changes.
TEST(FusedBound, EveryPointIsCharged) {
  const Contract& bf16 = contract_named("bf16_fused");
  const Sequence<double> x = in_format(random_head(6, 128, 16, 8), Format::bf16);
  for (const Mode mode : {Mode::det, Mode::prob, Mode::semi}) {
    const Bound all = bound_chunked(x, bf16, kFusedDelta, mode, 64);
    for (Format Contract::*point :
         {&Contract::residual, &Contract::T, &Contract::state_operand, &Contract::v_new, &Contract::v_decayed,
          &Contract::P, &Contract::inverse_operand, &Contract::qk}) {
      Contract less = bf16;
      less.*point = Format::fp32;
      const bool absent = point == &Contract::qk;
      const double smaller = bound_chunked(x, less, kFusedDelta, mode, 64).before_output.norm();
      EXPECT_EQ(smaller < (1 - 1e-6) * all.before_output.norm(), !absent);
    }
    // beta V, beta e^G K, U and W do not exist where the residual does.
    Contract other = bf16;
    other.beta_v = other.beta_exp_k = other.U = other.W = Format::bf16;
    EXPECT_EQ(bound_chunked(x, other, kFusedDelta, mode, 64).before_output, all.before_output);
  }
}

TEST(FusedBound, IsBelowThatOfUAndW) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    const Sequence<double> x = in_format(random_head(seed, 192, 32, 16), Format::bf16);
    const Bound fused = bound_chunked(x, contract_named("bf16_fused"), kFusedDelta, Mode::prob, 64);
    const Bound today = bound_chunked(x, contract_named("bf16"), kFusedDelta, Mode::prob, 64);
    EXPECT_LT(fused.before_output.norm(), today.before_output.norm());
    EXPECT_LT(fused.state, today.state);
  }
}

TEST(FusedBound, ScaleInPDoesNotChangeTheRelativeBound) {
  // P and its roundings scale with the output; only subnormals and a few fp32 roundings see the place.
  Contract c = contract_named("bf16_fused");
  Sequence<double> x = in_format(random_head(8, 90, 12, 6), Format::bf16);
  for (const double scale : {0.0, 1e-30, 0.25, 7.0}) {
    x.scale = scale;
    c.scale_in_P = true;
    const Bound inside = bound_chunked(x, c, kFusedDelta, Mode::prob, 64);
    c.scale_in_P = false;
    const Bound outside = bound_chunked(x, c, kFusedDelta, Mode::prob, 64);
    EXPECT_FALSE(inside.vacuous);
    EXPECT_LE((inside.rms - outside.rms).norm(), 1e-3 * outside.rms.norm()) << scale;
  }
}

TEST(FusedBound, InverseFromSmallBlocksIsCharged) {
  const Sequence<double> x = random_head(9, 64, 8, 4);
  const Matrix<double> KK = x.k * x.k.transpose();
  const Matrix<double> A = (x.beta.asDiagonal() * KK).triangularView<Eigen::StrictlyLower>();
  const Matrix<double> T = (Matrix<double>::Identity(64, 64) + A)
                               .triangularView<Eigen::UnitLower>()
                               .solve(Matrix<double>::Identity(64, 64));
  for (const Mode mode : {Mode::det, Mode::prob}) {
    const auto error = [&](Inverse inverse) {
      Contract c;
      c.inverse = inverse;
      c.inverse_operand = Format::tf32;
      c.accumulator = Accumulator::tensor_core;
      return bounds::inverse_error(A, T, c, mode);
    };
    const Matrix<double> from8 = error(Inverse::block8), from16 = error(Inverse::block16);
    // Inside 8 x 8 both substitute, eight roundings against sixteen; between 8 and 16 one of them merges.
    EXPECT_LT(from8(6, 3), from16(6, 3));
    EXPECT_GT(from8(12, 3), 10 * from16(12, 3));
    Mat kernel = Mat::Identity(64, 64);
    invert(A.cast<float>(), kernel, 0, 64, Format::tf32);
    const Matrix<double> off = (kernel.cast<double>() - T).cwiseAbs();
    const double limit = mode == Mode::det ? 1.0 : 5.0;
    EXPECT_LT((off - limit * from8).maxCoeff(), 1e-9);
  }
}

TEST(OldRead, BoundCoversDecodeFromTheOldState) {
  double largest = 0.0;
  for (const char* name : {"fp32_fused", "bf16_fused", "bf16_fused_state"}) {
    const Contract c = recurrent_contract(contract_named(name));
    for (const FusedRule& family : kHeads) {
      for (unsigned seed = 0; seed < 8; ++seed) {
        Sequence<double> x = random_head(seed, 100, 8 + 4 * (seed % 3), 6);
        family.change(x);
        x = in_format(x, c.input);
        const Result result = old_read_steps(x, c);
        for (const Mode mode : {Mode::det, Mode::prob, Mode::semi}) {
          if (mode == Mode::prob && c.state != Format::fp32) continue;  // roundings add up in time
          const Bound bound = bound_recurrent(x, c, kFusedDelta, mode);
          const bool hard = mode == Mode::det;
          const double r = ratio(result, x, bound, hard ? 1.0 : 5.0, hard ? 1.0 : 4.0);
          EXPECT_LT(r, 1.0) << name << ", " << family.name << ", seed " << seed << ", mode "
                            << static_cast<int>(mode);
          if (mode != Mode::det) largest = std::max(largest, r);
        }
      }
    }
  }
  EXPECT_GT(largest, 0.1);
  RecordProperty("largest", std::to_string(largest));
}

TEST(OldRead, TheTokensOwnWriteMatters) {
  const Contract c = recurrent_contract(contract_named("fp32_fused"));
  const Sequence<double> x = random_head(4, 40, 8, 6);
  const Bound bound = bound_recurrent(x, c, kFusedDelta, Mode::det);
  EXPECT_LT(ratio(old_read_steps(x, c), x, bound, 1.0, 1.0), 1.0);
  EXPECT_GT(ratio(old_read_steps(x, c, false), x, bound, 1.0, 1.0), 1000.0);
}

// A state that is about to be wiped: o reads what is large and cancels in the old state, nothing of it in the
// new one.
TEST(OldRead, CancellationIsCharged) {
  Sequence<double> x = random_head(12, 6, 16, 4);
  x.g.setZero();
  x.beta.setOnes();
  x.q = x.k;
  x.initial_state *= 1e4;
  Contract c = recurrent_contract(contract_named("fp32_fused"));
  const Bound old = bound_recurrent(x, c, kFusedDelta, Mode::det);
  EXPECT_LT(ratio(old_read_steps(x, c), x, old, 1.0, 1.0), 1.0);
  c.reads_old_state = false;
  const Bound fresh = bound_recurrent(x, c, kFusedDelta, Mode::det);
  EXPECT_NE(old.before_output, fresh.before_output);
}

/// x cut off toward zero to fp32.
double cut(double x) {
  const auto nearest = static_cast<float>(x);
  if (std::fabs(static_cast<double>(nearest)) <= std::fabs(x)) return static_cast<double>(nearest);
  return static_cast<double>(std::nextafter(nearest, 0.0F));
}

/// Largest of the rows' errors against their tolerance, and of the state's, of tf32_fused.
double worst_ratio(const Bound& bound, const Matrix<double>& o, const Matrix<double>& state,
                   const Trajectory<double>& exact) {
  double worst = (state - exact.state).norm() / bound.state_tolerance(kStateFactor);
  for (Index t = 0; t < o.rows(); ++t)
    worst = std::max(worst, (o.row(t) - exact.o.row(t)).norm() / bound.row_tolerance(t, kRowLambda));
  return worst;
}

// The matrix unit cuts off what does not fit, and a state that little is added to loses a little with each token: a
// hundred and fifty times in one direction, where independent roundings would lose twelve.
TEST(FusedBound, HoldsForAStateThatItsAccumulatorCutsOff) {
  const Contract c = contract_named("tf32_fused");
  double before = 0.0;
  for (unsigned seed = 0; seed < 8; ++seed) {
    Sequence<double> x = random_head(seed, 150, 16, 8);
    x.g.setZero();
    x.beta.setOnes();
    x.k *= 0x1p-12;
    x = x.cast<float>().cast<double>();
    const auto exact = recurrent<LinearAttention>(x);
    Matrix<double> S = x.initial_state;
    for (Index t = 0; t < x.tokens(); ++t) {
      const Matrix<double> kv = x.k.row(t).transpose() * x.v.row(t);
      S = (S + kv).unaryExpr([](double e) { return cut(e); });
    }
    const auto ratio = [&](const ExponentialModel& model) {
      const Bound bound = bound_chunked(x, c, Structure{false}, Mode::prob, 1, nullptr, 0.0, nullptr, model);
      return worst_ratio(bound, exact.o, S, exact);
    };
    EXPECT_LT(ratio({}), 1.0) << seed;
    ExponentialModel without;
    without.repeats = false;
    before = std::max(before, ratio(without));
  }
  EXPECT_GT(before, 1.0);
}

// Positive values: what one rounding of q_i does to its product with each key adds up over the keys.
TEST(FusedBound, OneRoundingOfAQueryIsInAllOfItsProducts) {
  const Contract c = contract_named("tf32_fused");
  double before = 0.0;
  for (unsigned seed = 0; seed < 8; ++seed) {
    Sequence<double> x = random_head(seed, 512, 2, 2);
    x.g.setZero();
    x.beta.setOnes();
    for (Matrix<double>* m : {&x.q, &x.k, &x.v}) *m = m->cwiseAbs();
    const auto exact = recurrent<LinearAttention>(x);
    Sequence<double> rounded_queries = x;
    rounded_queries.q = x.q.unaryExpr([](double e) { return round_to(e, Format::tf32); });
    const auto kernel = recurrent<LinearAttention>(rounded_queries);
    const auto ratio = [&](const ExponentialModel& model) {
      const Bound bound =
          bound_chunked(x, c, Structure{false}, Mode::prob, 512, nullptr, 0.0, nullptr, model);
      return worst_ratio(bound, kernel.o, kernel.state, exact);
    };
    EXPECT_LT(ratio({}), 1.0) << seed;
    ExponentialModel without;
    without.repeats = false;
    before = std::max(before, ratio(without));
  }
  EXPECT_GT(before, 1.0);
}

// If keys hardly differ, all tokens of a chunk subtract the same rounding of the state that they read.
TEST(FusedBound, OneRoundingOfTheStateIsInAllThatAChunkTakesOff) {
  const Contract c = contract_named("bf16");
  double before = 0.0;
  for (unsigned seed = 0; seed < 16; ++seed) {
    Sequence<double> x = random_head(seed, 128, 1, 2);
    x.g.setZero();
    x.beta *= 0.005;
    x.v.setZero();
    x.k.setOnes();
    x.initial_state *= 1e4;
    x = x.cast<float>().cast<double>();
    const auto exact = recurrent<GatedDeltaRule>(x);
    // The value that is read is M S, with M linear: here M of the rounded state, and what remains of the
    // state itself.
    Sequence<double> of_error = x;
    of_error.initial_state =
        x.initial_state.unaryExpr([](double e) { return round_to(e, Format::bf16); }) - x.initial_state;
    const auto kept = recurrent<GatedDeltaRule>(of_error);
    const Matrix<double> S = exact.state + kept.state - of_error.initial_state;
    const auto ratio = [&](const ExponentialModel& model) {
      const Bound bound = bound_chunked(x, c, Structure{true}, Mode::prob, 128, nullptr, 0.0, nullptr, model);
      return (S - exact.state).norm() / bound.state_tolerance(kStateFactor);
    };
    EXPECT_LT(ratio({}), 1.0) << seed;
    ExponentialModel without;
    without.repeats = false;
    before = std::max(before, ratio(without));
  }
  EXPECT_GT(before, 1.0);
}

// The same of k_i, and of beta k_i, in the products with the keys before it.
TEST(FusedBound, OneRoundingOfAKeyIsInAllOfItsRow) {
  for (const char* name : {"tf32_fused", "bf16+beta_k:bf16"}) {
    const Contract c = contract_named(name);
    const Format format = c.beta_k == Format::none ? c.qk : c.beta_k;
    for (unsigned seed = 0; seed < 4; ++seed) {
      Sequence<double> x = random_head(seed, 256, 2, 2);
      x.g.setZero();
      x.beta *= 0.02;
      for (Matrix<double>* m : {&x.q, &x.k, &x.v}) *m = m->cwiseAbs();
      x = x.cast<float>().cast<double>();
      const auto exact = recurrent<GatedDeltaRule>(x);
      // Only what a token reads goes by the rounded key; what it writes, by the key itself.
      Matrix<double> S = x.initial_state;
      Matrix<double> o(x.tokens(), x.value_width());
      for (Index t = 0; t < x.tokens(); ++t) {
        const Matrix<double> read = x.k.row(t).unaryExpr([&](double e) { return round_to(e, format); });
        S += x.k.row(t).transpose() * (x.beta(t) * (x.v.row(t) - read * S));
        o.row(t) = x.scale * (x.q.row(t) * S);
      }
      const Bound bound = bound_chunked(x, c, kFusedDelta, Mode::prob, 256, nullptr, 0.0, nullptr, {});
      EXPECT_LT(worst_ratio(bound, o, S, exact), 1.0) << name << ' ' << seed;
    }
  }
}

}  // namespace
}  // namespace samestate

#include "oracles/bounds/bound.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "oracles/bounds/chunked.h"
#include "oracles/bounds/recurrent.h"
#include "oracles/limits.h"
#include "oracles/numbers.h"
#include "oracles/rounding.h"
#include "reference/error.h"
#include "reference/gated_delta_rule.h"
#include "reference/retention.h"
#include "tests/oracles/bounds/heads.h"

namespace samestate {
namespace {

constexpr Structure kDelta{true};

/// Both forms by one name; the chunked one takes 5 tokens a chunk.
Bound bound_of(bool recurrent_form, const Sequence<double>& x, const Contract& contract, Mode mode,
               const StateError* carried = nullptr, double norm_error = 0.0, Structure structure = kDelta) {
  return recurrent_form ? bound_recurrent(x, contract, structure, mode, carried, norm_error)
                        : bound_chunked(x, contract, structure, mode, 5, carried, norm_error);
}

Trajectory<double> exact(const Sequence<double>& x) { return recurrent<GatedDeltaRule>(x); }

TEST(Bound, ExactOutputIsTheReferences) {
  const Sequence<double> x = random_head(1, 23, 6, 4);
  const Trajectory<double> found = exact(x);
  for (const bool form : {true, false}) {
    EXPECT_LT((bound_of(form, x, {}, Mode::prob).o - found.o).norm(), 1e-13 * found.o.norm());
  }
}

TEST(Bound, EmptyAndScalarHeads) {
  for (const bool form : {true, false}) {
    for (const Mode mode : {Mode::det, Mode::prob, Mode::semi}) {
      const Bound empty = bound_of(form, random_head(2, 0, 4, 3), {}, mode);
      EXPECT_EQ(empty.rms.size(), 0);
      EXPECT_EQ(empty.state, 0.0);
      EXPECT_FALSE(empty.vacuous);
      const Bound scalar = bound_of(form, random_head(3, 12, 1, 1), {}, mode);
      EXPECT_FALSE(scalar.vacuous);
      EXPECT_GT(scalar.before_output.minCoeff(), 0.0);
      EXPECT_GT(scalar.state, 0.0);
    }
  }
  Contract stored;
  stored.state = Format::bf16;
  const Sequence<double> x = random_head(2, 0, 4, 3);
  const Vector<double> rows = x.initial_state.rowwise().norm();
  EXPECT_NEAR(bound_recurrent(x, stored, kDelta, Mode::prob).state, 0x1p-8 / std::sqrt(3.0) * rows.norm(),
              1e-15)
      << "a kernel that stores the state rounds the one it is given";
}

// A segment that starts from the error of the one before it ends with the bound of both together.
TEST(Bound, SegmentsChain) {
  for (const bool constant : {false, true}) {
    Sequence<double> x = random_head(4, 36, 6, 4);
    if (constant) x.g.setConstant(-0.03125);
    for (const bool form : {true, false}) {
      for (const Format state : {Format::fp32, Format::bf16}) {
        for (const Mode mode : {Mode::det, Mode::prob, Mode::semi}) {
          Contract contract;
          contract.state = state;
          contract.reads_old_state = constant;
          if (constant) contract.residual = Format::bf16;
          const Bound whole = bound_of(form, x, contract, mode);
          Matrix<double> S = x.initial_state;
          StateError carried;
          const StateError* start = nullptr;
          // Chunks of 5 can only be cut at their ends; tokens anywhere, one by itself included.
          const std::vector<Index> cuts =
              form ? std::vector<Index>{0, 20, 30, 31, 36} : std::vector<Index>{0, 20, 30, 35, 36};
          for (std::size_t c = 1; c < cuts.size(); ++c) {
            const Index end = cuts[c];
            const Sequence<double> part = x.slice(cuts[c - 1], end, S);
            const Bound bound = bound_of(form, part, contract, mode, start);
            const Index n = part.tokens();
            EXPECT_LT((bound.before_output - whole.before_output.segment(end - n, n)).norm(),
                      1e-9 * bound.before_output.norm());
            EXPECT_LE((bound.coherent - whole.coherent.segment(end - n, n)).norm(),
                      1e-9 * bound.coherent.norm());
            carried = bound.carry;
            start = &carried;
            S = exact(part).state;
          }
          EXPECT_NEAR(std::sqrt(carried.sigma.trace()) + std::sqrt(carried.coherent.trace()), whole.state,
                      1e-9 * whole.state);
          EXPECT_EQ(constant && mode != Mode::det, carried.repeating_gate);
          EXPECT_EQ(mode != Mode::det,
                    carried.coherent.trace() > 0);  // a varying gate: the exponential's bias
        }
      }
    }
  }
}

TEST(Bound, ForgettingTheCarriedErrorShows) {
  const Sequence<double> x = random_head(5, 20, 6, 4);
  const Bound whole = bound_recurrent(x, {}, kDelta, Mode::prob);
  const Sequence<double> tail = x.slice(10, 20, exact(x.slice(0, 10, x.initial_state)).state);
  EXPECT_LT(bound_recurrent(tail, {}, kDelta, Mode::prob).before_output(0), 0.9 * whole.before_output(10));
}

// The update of sigma must treat what rounding makes unsymmetric as it treats the rest: long memory shows
// otherwise.
TEST(Bound, SigmaStaysSymmetric) {
  for (const double length : {1.0, 1.3, 1.6}) {
    Sequence<double> x = random_head(11, 600, 16, 2);
    x.g.setZero();
    x.beta.setOnes();
    x.k *= length;
    for (const Format state : {Format::fp32, Format::bf16}) {
      Contract contract;
      contract.state = state;
      for (const bool form : {true, false}) {
        for (const Mode mode : {Mode::det, Mode::prob, Mode::semi}) {
          const Bound bound = bound_of(form, x, contract, mode);
          if (bound.vacuous) continue;
          const Matrix<double> sigma = bound.carry.sigma;
          EXPECT_LT((sigma - sigma.transpose()).norm(), 1e-13 * sigma.norm())
              << length << ' ' << form << ' ' << static_cast<int>(mode);
        }
      }
    }
  }
}

TEST(Bound, TolerancesAreInfiniteWhereVacuous) {
  Bound bound = bound_recurrent(random_head(6, 8, 4, 4), {}, kDelta, Mode::prob);
  EXPECT_DOUBLE_EQ(bound.row_tolerance(3, 5.0),
                   5.0 * bound.before_output(3) + bound.coherent(3) + bound.output_rounding(3));
  EXPECT_DOUBLE_EQ(bound.state_tolerance(4.0), 4.0 * bound.state);
  // Row by row the two parts add as they do in the whole, where a norm of sums is at most the sum of norms.
  EXPECT_LE(bound.state_rows.norm(), (1 + 1e-12) * bound.state);
  EXPECT_GE(bound.state_rows.norm(), bound.state / std::sqrt(2.0));
  bound.vacuous = true;
  EXPECT_EQ(bound.row_tolerance(3, 5.0), kInfinity);
  EXPECT_EQ(bound.state_tolerance(4.0), kInfinity);
}

TEST(Bound, NotFiniteIsVacuous) {
  const Sequence<double> x = random_head(7, 12, 4, 4);
  for (const double bad : {kInfinity, std::nan(""), 1e200}) {
    Sequence<double> broken = x;
    broken.v(6, 2) = bad;
    for (const bool form : {true, false}) EXPECT_TRUE(bound_of(form, broken, {}, Mode::prob).vacuous) << bad;
  }
  // An error that is not finite may come with outputs that are: here, with none.
  StateError carried{Matrix<double>::Identity(4, 4), Matrix<double>::Zero(4, 4)};
  const Sequence<double> none = x.slice(0, 0, x.initial_state);
  EXPECT_FALSE(bound_recurrent(none, {}, kDelta, Mode::prob, &carried).vacuous);
  carried.sigma(2, 2) = kInfinity;
  EXPECT_TRUE(bound_recurrent(none, {}, kDelta, Mode::prob, &carried).vacuous);
}

TEST(Bound, ShapesAndChunkAreChecked) {
  const Sequence<double> x = random_head(8, 6, 4, 3);
  const auto rejected = [](const Sequence<double>& bad) {
    EXPECT_THROW((void)bound_recurrent(bad, {}, kDelta, Mode::prob), Error);
    EXPECT_THROW((void)bound_chunked(bad, {}, kDelta, Mode::prob, 4), Error);
  };
  Sequence<double> bad = x;
  bad.q = x.q.leftCols(3);
  rejected(bad);
  bad = x;
  bad.v = x.v.topRows(5);
  rejected(bad);
  bad = x;
  bad.g = x.g.head(5);
  rejected(bad);
  bad = x;
  bad.beta = x.beta.head(2);
  rejected(bad);
  bad = x;
  bad.initial_state = x.initial_state.transpose().eval();
  rejected(bad);
  EXPECT_THROW((void)bound_chunked(x, {}, kDelta, Mode::prob, 0), Error);
  const StateError wrong{Matrix<double>::Zero(3, 3), Matrix<double>::Zero(4, 4)};
  EXPECT_THROW((void)bound_recurrent(x, {}, kDelta, Mode::prob, &wrong), Error);
  const Trajectory<double> other = exact(x.slice(0, 4, x.initial_state));
  EXPECT_THROW((void)bound_chunked(x, {}, kDelta, Mode::prob, 4, nullptr, 0.0, &other), Error);
}

/// RMS and largest ratio of ||change of o_t|| to the bound over trials, and of the state's change.
struct Ratios {
  double largest = 0.0;
  double rms = 0.0;   ///< RMS of the worst row
  double head = 0.0;  ///< RMS of all changes over RMS of the bound
  double state = 0.0;
  double state_rms = 0.0;
};

/// Runs the exact recurrence on inputs that `perturb` changes, and holds what changes against `bound`.
template <class Perturb>
Ratios against(const Bound& bound, const Sequence<double>& x, int trials, Perturb&& perturb) {
  const Trajectory<double> plain = exact(x);
  const Vector<double> total = bound.before_output + bound.coherent;
  Vector<double> squares = Vector<double>::Zero(x.tokens());
  Ratios ratios;
  for (int i = 0; i < trials; ++i) {
    Sequence<double> changed = x;
    perturb(changed);
    const Trajectory<double> found = exact(changed);
    const Vector<double> change = (found.o - plain.o).rowwise().norm();
    const Vector<double> ratio = change.cwiseQuotient(total);
    ratios.largest = std::max(ratios.largest, ratio.maxCoeff());
    squares += ratio.cwiseAbs2();
    ratios.head += change.squaredNorm() / total.squaredNorm() / trials;
    const double state = (found.state - plain.state).norm() / bound.state;
    ratios.state = std::max(ratios.state, state);
    ratios.state_rms += state * state / trials;
  }
  ratios.rms = std::sqrt(squares.maxCoeff() / trials);
  ratios.state_rms = std::sqrt(ratios.state_rms);
  ratios.head = std::sqrt(ratios.head);
  return ratios;
}

// In-kernel l2norm: rows of q and k off by one factor each, far above the rounding of fp32, so that the bound
// of the norm is all there is to see.
TEST(Bound, CoversTheErrorOfTheKernelsNorm) {
  constexpr double e = 1e-4;
  for (unsigned seed = 0; seed < 4; ++seed) {
    const Sequence<double> x = random_head(20 + seed, 16, 5, 4);
    for (const bool form : {true, false}) {
      std::mt19937 random(seed);
      const auto rows = [&](Sequence<double>& changed, auto&& factor) {
        for (Index t = 0; t < changed.tokens(); ++t) {
          changed.q.row(t) *= 1 + factor();
          changed.k.row(t) *= 1 + factor();
        }
      };
      std::bernoulli_distribution coin;
      const Bound det = bound_of(form, x, {}, Mode::det, nullptr, e);
      const Ratios worst = against(det, x, 300, [&](Sequence<double>& changed) {
        rows(changed, [&] { return coin(random) ? e : -e; });
      });
      EXPECT_LE(worst.largest, 1.0);
      EXPECT_LE(worst.state, 1.0);
      EXPECT_GT(worst.largest, 0.1) << "and is not loose either";

      std::uniform_real_distribution<double> uniform(-e, e);
      const Bound prob = bound_of(form, x, {}, Mode::prob, nullptr, e / std::sqrt(3.0));
      const Ratios mean = against(
          prob, x, 1000, [&](Sequence<double>& changed) { rows(changed, [&] { return uniform(random); }); });
      EXPECT_LE(mean.head, 1.1);
      EXPECT_LE(mean.state_rms, 1.1);
      EXPECT_LE(mean.rms, 1.5) << "one factor acts in several places of a row, quadrature takes them apart";
      EXPECT_GT(mean.head, 0.5);

      const Ratios blind = against(bound_of(form, x, {}, Mode::det), x, 10, [&](Sequence<double>& changed) {
        rows(changed, [&] { return coin(random) ? e : -e; });
      });
      EXPECT_GT(blind.largest, 10.0) << "without the extension the bound does not hold";
    }
  }
}

// The same for the elements of q and k, each rounded to `qk`: one rounded k serves everywhere.
TEST(Bound, CoversTheRoundingOfNormalisedOperands) {
  Contract contract;
  contract.qk = Format::tf32;
  const double u = unit_roundoff(contract.qk);
  for (unsigned seed = 0; seed < 4; ++seed) {
    const Sequence<double> x = random_head(30 + seed, 16, 5, 4);
    for (const bool form : {true, false}) {
      std::mt19937 random(seed);
      std::uniform_real_distribution<double> uniform(-u, u);
      const auto elements = [&](Sequence<double>& changed) {
        for (Matrix<double>* m : {&changed.q, &changed.k}) {
          for (double& value : m->reshaped()) value *= 1 + uniform(random);
        }
      };
      const auto ratios = [&](Mode mode) {
        const Bound bound = bound_of(form, x, contract, mode, nullptr, l2norm_error(mode, 5));
        return against(bound, x, 500, elements);
      };
      const Ratios det = ratios(Mode::det);
      const Ratios prob = ratios(Mode::prob);
      EXPECT_LE(det.largest, 1.0);
      EXPECT_LE(det.state, 1.0);
      EXPECT_LE(prob.head, 1.1);
      EXPECT_LE(prob.state_rms, 1.1);
      EXPECT_LE(prob.rms, 1.5);
      EXPECT_GT(prob.head, 0.5);
      EXPECT_GT(against(bound_of(form, x, {}, Mode::det), x, 10, elements).largest, 10.0);
    }
  }
}

// One token, v = 0, k along an axis: the state changes by 2 kappa b k p^T, and every term of the det bound is
// attained.
TEST(Bound, NormErrorIsAttained) {
  constexpr double e = 1e-4;
  Sequence<double> x = random_head(39, 1, 5, 4);
  x.g.setZero();
  x.v.setZero();
  x.k.setZero();
  x.k(0, 2) = 1.0;
  Contract rounded;
  rounded.qk = Format::tf32;
  const double u = unit_roundoff(rounded.qk);
  for (const bool form : {true, false}) {
    for (const auto& [contract, norm_error, change] :
         {std::tuple{Contract{}, e, e}, std::tuple{rounded, 1e-12, u}}) {
      const Bound bound = bound_of(form, x, contract, Mode::det, nullptr, norm_error);
      const Ratios found =
          against(bound, x, 1, [c = change](Sequence<double>& changed) { changed.k *= 1 - c; });
      EXPECT_LE(found.state, 1.0);
      EXPECT_GT(found.state, 0.98);
    }
  }
}

// A hard reset by any number is one case: a kernel may take any value from -128 down to -1024 for it (kernel.h), so that
// the bound is finite, lies between those of the two, and below them stays; tokens after it owe nothing to the state
// before it.
TEST(Bound, HardResetsStayFinite) {
  Contract contract;
  contract.exponential = Exponential::ex2;  // its error grows with |g|
  for (const bool form : {true, false}) {
    for (const Mode mode : {Mode::det, Mode::prob, Mode::semi}) {
      Sequence<double> x = random_head(40, 25, 5, 4);
      x.g(7) = x.g(13) = x.g(14) = -128.0;
      const Bound floor = bound_of(form, x, contract, mode);
      ASSERT_FALSE(floor.vacuous);
      x.g(7) = x.g(13) = x.g(14) = -1024.0;
      const Bound deep = bound_of(form, x, contract, mode);
      for (const double reset : {-200.0, -1e38, -kInfinity}) {
        x.g(7) = x.g(13) = x.g(14) = reset;
        const Bound bound = bound_of(form, x, contract, mode);
        EXPECT_FALSE(bound.vacuous) << reset;
        EXPECT_LE(floor.before_output.norm(), bound.before_output.norm() * (1 + 1e-9)) << reset;
        EXPECT_LE(bound.before_output.norm(), deep.before_output.norm() * (1 + 1e-9)) << reset;
        EXPECT_LE(floor.state, bound.state * (1 + 1e-9)) << reset;
        EXPECT_LE(bound.state, deep.state * (1 + 1e-9)) << reset;
        if (reset > -1024.0) continue;
        EXPECT_LT((bound.before_output - deep.before_output).norm(), 1e-9 * deep.before_output.norm())
            << reset;
        EXPECT_NEAR(bound.state, deep.state, 1e-9 * deep.state) << reset;
      }
      if (mode == Mode::det) continue;  // F1 weighs a chunk's tokens by the sum of all their errors
      x.initial_state.setZero();
      const Bound without = bound_of(form, x, contract, mode);
      EXPECT_NEAR(without.before_output(24), deep.before_output(24), 1e-9 * deep.before_output(24));
    }
  }
}

// exp(g) below 2^-126: a kernel that flushes it to zero loses all of the state, one that keeps subnormals a
// part.
TEST(Bound, CoversFlushedDecays) {
  for (const double g : {-85.0, -88.0, -95.0, -103.0, -110.0}) {
    Sequence<double> x = random_head(41, 1, 16, 4);
    x.g(0) = g;
    x.v.setZero();
    x.beta.setConstant(0.25);
    x.initial_state *= 1e30;
    Sequence<double> flushed = x;
    if (std::exp(g) < 0x1p-126) flushed.initial_state.setZero();
    const double error = (exact(x).o - exact(flushed).o).norm();
    const double lost = (exact(x).state - exact(flushed).state).norm();
    for (const bool form : {true, false}) {
      for (const Mode mode : {Mode::det, Mode::prob, Mode::semi}) {
        const Bound bound = bound_of(form, x, {}, mode);
        EXPECT_LE(error, bound.row_tolerance(0, 1.0)) << g;
        EXPECT_LE(lost, bound.state_tolerance(mode == Mode::det ? 1.0 : 4.0)) << g;
        if (g == -85.0) {
          EXPECT_LT(bound.before_output(0), 1e-4 * bound.o.norm());
        }
      }
    }
  }
}

// "Sums in any order": the products of a chunk may be added one by one to what the state, or e^G Q S, is. Here each is just
// below half a unit of it in the last place, and is lost.
TEST(Bound, CoversProductsThatAreAddedToTheState) {
  constexpr Index kTokens = 64;
  Sequence<double> x = random_head(42, kTokens, 1, 1);
  x.g.setZero();
  x.beta.setOnes();
  x.k.setOnes();
  x.q.setOnes();
  x.v.setConstant(0.49 * 0x1p-23);
  x.initial_state.setOnes();
  x.scale = 1.0;
  for (const bool delta : {false, true}) {
    // With the delta rule a token whose value is near the state's writes the difference.
    if (delta) x.v.setConstant(1.0 + 0.49 * 0x1p-23), x.beta.setConstant(1.0 / kTokens);
    const double written = recurrent<GatedDeltaRule>(x).state(0, 0);
    const double lost = delta ? std::abs(written - 1.0) : kTokens * 0.49 * 0x1p-23;
    const Bound bound = bound_chunked(x, {}, Structure{delta}, Mode::det, kTokens);
    EXPECT_LE(lost, bound.state_tolerance(1.0)) << delta;
    EXPECT_LE(lost, bound.row_tolerance(kTokens - 1, 1.0)) << delta;
    // Not by much: a unit in the last place for each token and one for the rest.
    EXPECT_LT(bound.state_tolerance(1.0), 3 * (kTokens + 4) * 0x1p-23) << delta;
  }
}

// A token judged by itself: the exponential of a strong gate may err by 1.5 |g| u32, more than all else
// together.
TEST(Bound, SeesTheDecayOfTheTokenItself) {
  Contract contract;
  contract.exponential = Exponential::ex2;
  Sequence<double> x = random_head(42, 1, 16, 8);
  x.g(0) = -60.0;
  x.v.setZero();
  const double relative = 1.5 * 60 * 0x1p-24;
  for (const bool form : {true, false}) {
    for (const Mode mode : {Mode::det, Mode::prob, Mode::semi}) {
      const Bound bound = bound_of(form, x, contract, mode);
      EXPECT_GE(bound.before_output(0) + bound.coherent(0), relative / std::sqrt(3.0) * bound.o.norm());
    }
  }
}

}  // namespace
}  // namespace samestate

#include "oracles/bounds/decay.h"

#include <gtest/gtest.h>

#include <cmath>

#include "oracles/bounds/algebra.h"

namespace samestate::bounds {
namespace {

/// Exponentials without an error of their own: what is left is the scan's.
constexpr ExponentialModel kExactExponential = {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, true};

/// The bound as it was, of a running sum alone.
constexpr ExponentialModel kRunningSumAlone = {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, false};

/// Largest |e^{fl(G_i) - fl(G_j)} - e^{G_i - G_j}| over its bound, for sums that are rounded once.
double rounded_once(const Vector<double>& g, Mode mode, const ExponentialModel& model = kExactExponential) {
  const ChunkDecay decay = chunk_decay(g, Exponential::exact, Scan::sequential, mode, model);
  const Index L = g.size();
  Vector<double> sums(L), rounded(L);
  double sum = 0.0;
  for (Index i = 0; i < L; ++i) {
    sum += g(i);
    sums(i) = sum;
    rounded(i) = static_cast<double>(static_cast<float>(sum));
  }
  double worst = 0.0;
  for (Index i = 0; i < L; ++i) {
    for (Index j = 0; j < i; ++j) {
      const double error = std::fabs(std::exp(rounded(i) - rounded(j)) - std::exp(sums(i) - sums(j)));
      worst = std::max(worst, error / decay.between_error(i, j));
    }
  }
  return worst;
}

// BOUNDS 5: a kernel may sum g exactly and round each sum once. Neighbours then differ by two roundings, where a
// running sum has one: with the running sum's bound alone these gates exceed it.
TEST(Decay, CoversSumsThatAreRoundedOnce) {
  for (const double first : {-65.0, -33.0, -17.0, -120.0}) {
    Vector<double> g = Vector<double>::Constant(64, -1e-3);
    g(0) = first;
    const double worst = rounded_once(g, Mode::det);
    // Just above a power of two, an ulp is largest in comparison with the value.
    if (first > -100.0) {
      EXPECT_GT(rounded_once(g, Mode::det, kRunningSumAlone), 1.2) << first;
    }
    EXPECT_LE(worst, 1.0) << first;
    EXPECT_GT(worst, 0.45) << first;  // and it is no wider than that takes
    // A standard deviation, of roundings that are at most sqrt 3 of theirs, at both ends.
    for (const Mode mode : {Mode::prob, Mode::semi})
      EXPECT_LE(rounded_once(g, mode), std::sqrt(6.0)) << first;
  }
}

/// Largest error of the running fp32 sum of g, taken as `floor` where it lies below, over its bound.
double floored(const Vector<double>& g, double floor, Mode mode) {
  const ChunkDecay decay = chunk_decay(g, Exponential::exact, Scan::sequential, mode, kExactExponential);
  const Index L = g.size();
  Vector<double> sums(L), running(L);
  double sum = 0.0;
  float single = 0.0F;
  for (Index i = 0; i < L; ++i) {
    sum += std::max(g(i), -128.0);
    single += static_cast<float>(std::max(g(i), floor));
    sums(i) = sum;
    running(i) = static_cast<double>(single);
  }
  double worst = 0.0;
  for (Index i = 0; i < L; ++i) {
    for (Index j = 0; j < i; ++j) {
      const double error = std::fabs(std::exp(running(i) - running(j)) - std::exp(sums(i) - sums(j)));
      if (error > 1e-37) worst = std::max(worst, error / decay.between_error(i, j));
    }
  }
  return worst;
}

// Any g of -128 or less is a reset: the number to which a kernel clips it moves the sums after it, and their
// roundings.
TEST(Decay, CoversEveryFloorOfTheHeader) {
  double deep = 0.0;
  for (int seed = 0; seed < 200; ++seed) {
    Vector<double> g(48);
    for (Index i = 0; i < g.size(); ++i) {
      const double x = std::fmod(0.7548776662 * static_cast<double>(i + 1) + 0.5698402910 * seed, 1.0);
      g(i) = static_cast<double>(
          static_cast<float>(i % 9 == 4 ? (seed % 2 == 0 ? -1e38 : -316.0 * x) : -0.9 * x));
    }
    for (const double floor : {-128.0, -160.0, -200.0, -1000.0, -1024.0}) {
      EXPECT_LE(floored(g, floor, Mode::det), 1.0) << floor;
      EXPECT_LE(floored(g, floor, Mode::prob), 4.0) << floor;
    }
    deep = std::max(deep, floored(g, -65536.0, Mode::det));
  }
  EXPECT_GT(deep, 1.0) << "a floor below the header's is beyond the worst case";
}

// The sums of a running sum lie within it as before.
TEST(Decay, CoversTheRunningSum) {
  Vector<double> g(64);
  for (Index i = 0; i < g.size(); ++i)
    g(i) = static_cast<double>(static_cast<float>(-0.37 - 1e-3 * std::sin(i)));
  const ChunkDecay decay = chunk_decay(g, Exponential::exact, Scan::sequential, Mode::det, kExactExponential);
  float running = 0.0F;
  double sum = 0.0;
  Vector<double> error(g.size());
  for (Index i = 0; i < g.size(); ++i) {
    running += static_cast<float>(g(i));
    sum += g(i);
    error(i) = static_cast<double>(running) - sum;
  }
  for (Index i = 0; i < g.size(); ++i) {
    for (Index j = 0; j < i; ++j) {
      const double exact = decay.between(i, j);
      EXPECT_LE(std::fabs(exact * std::expm1(error(i) - error(j))), decay.between_error(i, j));
    }
  }
}

}  // namespace
}  // namespace samestate::bounds

#include "oracles/systems/family.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "oracles/contracts.h"
#include "oracles/path.h"
#include "reference/error.h"
#include "tests/oracles/bounds/heads.h"

namespace samestate {
namespace {

struct Regime {
  const char* name;
  void (*apply)(Sequence<double>&);
};

const Regime kRegimes[] = {
    {"random", [](Sequence<double>&) {}},
    {"no decay", [](Sequence<double>& x) { x.g.setZero(); }},
    {"long memory", [](Sequence<double>& x) { x.g *= 1e-4; }},
    {"fast decay", [](Sequence<double>& x) { x.g *= 100.0; }},
    {"resets",
     [](Sequence<double>& x) {
       for (Index t = 2; t < x.tokens(); t += 5) x.g(t) = -1e38;
     }},
    {"beta of 1", [](Sequence<double>& x) { x.beta.setOnes(); }},
    {"beta near 2, not normal",
     [](Sequence<double>& x) {
       x.beta.array() += 1.0;
       x.k *= 1.05;
     }},
    {"one key",
     [](Sequence<double>& x) {
       for (Index t = 1; t < x.tokens(); ++t) x.k.row(t) = x.k.row(0);
     }},
    {"large values", [](Sequence<double>& x) { x.v *= 1e6; }},
    {"values of many sizes",
     [](Sequence<double>& x) {
       for (Index t = 0; t < x.tokens(); ++t) x.v.row(t) *= std::exp2(static_cast<double>(t % 21) - 10.0);
     }},
    {"zero state", [](Sequence<double>& x) { x.initial_state.setZero(); }},
};

struct Shape {
  Index tokens, key_width, value_width;
};

constexpr Shape kShapes[] = {{1, 1, 1}, {7, 3, 5}, {40, 16, 8}, {96, 8, 33}};

Sequence<double> head_of(const Family& family, const Regime& regime, const Shape& shape) {
  Sequence<double> x = random_head(11, shape.tokens, shape.key_width, shape.value_width);
  regime.apply(x);
  if (!family.gated) x.g.setZero();
  if (!family.delta) x.beta.setOnes();
  return x.cast<float>().cast<double>();
}

double ratio_of(double error, double bound) { return error == 0 ? 0 : error / bound; }

/// The oracle's own error, certified by interval arithmetic, against the tightest figure of the tightest
/// contract: the predicted RMS error under fp32, which every tolerance of every contract exceeds.
TEST(Certify, OracleIsAThousandTimesBetterThanAnyBoundItServes) {
  double largest_row = 0;
  double largest_state = 0;
  std::string where;
  for (const Family& family : families()) {
    for (const Regime& regime : kRegimes) {
      for (const Shape& shape : kShapes) {
        const Sequence<double> x = head_of(family, regime, shape);
        const Family::Certificate error = family.certify(x, family.recurrent(x));
        for (const Index chunk : {Index{0}, Index{16}}) {
          for (const Mode mode : {Mode::prob, Mode::det}) {
            const Bound bound = bound_of(x, whole(x.tokens(), chunk), {}, family, mode, false);
            for (Index t = 0; t < x.tokens(); ++t) {
              const double r = ratio_of(error.o(t), bound.rms(t));
              EXPECT_LT(r, 1e-3) << family.name << ", " << regime.name << ", token " << t;
              if (r > largest_row) where = std::string(family.name) + ", " + regime.name;
              largest_row = std::max(largest_row, r);
            }
            const double r = ratio_of(error.state, bound.state);
            EXPECT_LT(r, 1e-3) << family.name << ", " << regime.name << ", state";
            largest_state = std::max(largest_state, r);
          }
        }
      }
    }
  }
  RecordProperty("largest_row_ratio", std::to_string(largest_row * 1e9) + "e-9");
  RecordProperty("largest_state_ratio", std::to_string(largest_state * 1e9) + "e-9");
  RecordProperty("largest_row_ratio_at", where);
  EXPECT_GT(largest_row, 0) << "nothing was certified";
  EXPECT_GT(largest_state, 0) << "nothing was certified";
}

TEST(Certify, SeesAPerturbedTrajectory) {
  for (const Family& family : families()) {
    const Sequence<double> x = head_of(family, kRegimes[0], {12, 4, 3});
    const Trajectory<double> found = family.recurrent(x);
    const Family::Certificate honest = family.certify(x, found);
    EXPECT_LT(honest.o.maxCoeff(), 1e-13) << family.name;
    EXPECT_LT(honest.state, 1e-13) << family.name;
    constexpr double kPlanted = 1e-9;
    Trajectory<double> wrong = found;
    wrong.o(5, 2) += kPlanted;
    const Family::Certificate of_o = family.certify(x, wrong);
    EXPECT_NEAR(of_o.o(5), kPlanted, 1e-3 * kPlanted) << family.name;
    EXPECT_EQ(of_o.o(4), honest.o(4)) << family.name;
    EXPECT_EQ(of_o.state, honest.state) << family.name;
    wrong = found;
    wrong.state(3, 1) -= kPlanted;
    EXPECT_NEAR(family.certify(x, wrong).state, kPlanted, 1e-3 * kPlanted) << family.name;
  }
}

/// An oracle in fp32 would not do: the criterion above has to reject it.
TEST(Certify, RejectsAnOracleInSinglePrecision) {
  for (const Family& family : families()) {
    const Sequence<double> x = head_of(family, kRegimes[0], {40, 16, 8});
    Trajectory<double> rounded = family.recurrent(x);
    rounded.o = rounded.o.cast<float>().cast<double>();
    const Bound bound = bound_of(x, whole(40, 0), {}, family, Mode::prob, false);
    EXPECT_GT(family.certify(x, rounded).o.cwiseQuotient(bound.rms).maxCoeff(), 1e-3) << family.name;
  }
}

TEST(Families, FormsAgreeAndReadWhatTheySay) {
  for (const Family& family : families()) {
    Sequence<double> x = head_of(family, kRegimes[0], {23, 6, 4});
    const Trajectory<double> found = family.recurrent(x);
    for (const Index chunk : {1, 5, 23, 64}) {
      const Trajectory<double> other = family.chunked(x, chunk);
      EXPECT_LT((other.o - found.o).norm(), 1e-13 * found.o.norm()) << family.name << chunk;
      EXPECT_LT((other.state - found.state).norm(), 1e-13 * found.state.norm()) << family.name << chunk;
    }
    EXPECT_EQ(family.structure().delta, family.delta);
    Sequence<double> other_gate = x, other_beta = x;
    other_gate.g.array() -= 1.0;
    other_beta.beta *= 0.5;
    EXPECT_EQ(family.recurrent(other_gate).o != found.o, family.gated) << family.name;
    EXPECT_EQ(family.recurrent(other_beta).o != found.o, family.delta) << family.name;
  }
}

TEST(Families, NamesAreUniqueAndUnknownOnesListThem) {
  EXPECT_EQ(families().size(), 4U);
  for (const Family& family : families()) EXPECT_EQ(&family_named(family.name), &family);
  try {
    static_cast<void>(family_named("mamba"));
    FAIL() << "no Error";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("mamba"), std::string::npos);
    for (const Family& family : families())
      EXPECT_NE(message.find(family.name), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace samestate

#include "oracles/systems/twin_shares.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "oracles/contracts.h"
#include "oracles/numbers.h"
#include "tests/oracles/systems/drawn_call.h"

namespace samestate {
namespace {

TEST(TwinShares, OfErrorsThatAreSharedOpposedOrIndependent) {
  Matrix<double> y = Matrix<double>::Constant(4, 2, 1.0);
  Matrix<double> twin = y;
  Matrix<double> kernel = y;
  twin.row(0) << 1.01, 0.99;
  kernel.row(0) = twin.row(0);
  twin.row(1) << 1.01, 1.0;
  kernel.row(1) << 1.0, 1.01;
  twin.row(2) << 1.01, 1.01;
  kernel.row(2) << 0.99, 0.99;
  const Vector<double> rho = unshared(kernel, twin, y);
  EXPECT_EQ(rho(0), 0.0);
  EXPECT_NEAR(rho(1), 1.0, 1e-9);
  EXPECT_NEAR(rho(2), 2.0, 1e-9);
  EXPECT_EQ(rho(3), -1.0);  // no error
}

TEST(TwinShares, ATieFallsAsTheKernelHasIt) {
  const double tie = 1.0 + 0x1p-11, even = 1.0, odd = 1.0 + 0x1p-10;  // of fp16
  const Matrix<double> twin{{tie, tie, tie * (1.0 + 0x1p-23), tie * (1.0 + 0x1p-20), 1.25, tie}};
  const Matrix<double> kernel{{odd, even, even, even, 1.5, 1.0 - 0x1p-11}};
  const Matrix<double> w = written_beside(twin, kernel, Format::fp16);
  const Matrix<double> expected{{odd, even, even, odd, 1.25, even}};
  EXPECT_EQ(w, expected);
  EXPECT_EQ(written(twin, kernel, Format::fp16)(0, 0), even);
  // A kernel that writes fp32 has no ties of 16 bit.
  const Matrix<double> wide{{1.0 + 0x1p-20}}, of_twin{{1.0 + 0x1p-11}};
  EXPECT_EQ(written_beside(of_twin, wide, Format::fp16), of_twin);
}

struct DrawnShare : DrawnSubject {
  DrawnShare(const char* name, const char* form, Index tokens, const std::map<std::string, Index>& sizes)
      : DrawnSubject(name, form, tokens, sizes, "bf16", 5) {}
};

/// There are 16 tokens, the last 12 of which are the same, and a kernel that rounds these differently.
TEST(TwinShares, RowsOfEqualTokensAreOneWitness) {
  DrawnShare drawn("multi_scale_retention", "chunked", 16, {{"D", 24}, {"H", 2}, {"dk", 4}, {"dv", 4}});
  const Share of_all = share_of(drawn.subject(), "y", get(twin_values(drawn.subject(), {}), "y"),
                                get(twin_values(drawn.subject(), {}), "y"));
  EXPECT_EQ(of_all.rows, 16);
  Matrix<double>& x = drawn.inputs.find("x")->second;
  for (Index t = 5; t < 16; ++t) x.row(t) = x.row(4);
  drawn.judge();
  const Matrix<double> twin = get(twin_values(drawn.subject(), {}), "y");
  Matrix<double> kernel = twin;
  for (Index t = 4; t < 16; ++t)
    kernel.row(t) = 2.0 * get(drawn.oracle.exact, "y").row(t) - twin.row(t);  // errors of the other sign
  const Share share = share_of(drawn.subject(), "y", kernel, twin);
  EXPECT_EQ(share.rows, 5);
  EXPECT_NEAR(share.mean, 2.0 / 5.0, 0.1);  // rounded to bf16 as the kernel writes it
  EXPECT_GE(share.worst, 4);
}

TEST(TwinShares, AStateHasAsManyWitnessesAsDirections) {
  const DrawnShare drawn("gated_delta_net", "recurrent", 3,
                         {{"D", 6}, {"Hk", 1}, {"Hv", 1}, {"dk", 12}, {"dv", 9}});
  const Matrix<double>& exact = get(drawn.oracle.exact, "S");
  const Matrix<double> twin = get(twin_values(drawn.subject(), {}), "S");
  const double directions = directions_of(drawn.subject(), "S", twin);
  EXPECT_GE(directions, 1.0);
  EXPECT_LE(directions, 6.0) << "two roundings of each of three tokens, one of k and one of v";
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  const Matrix<double> free = exact.unaryExpr([&](double e) { return e + 0x1p-9 * normal(random); });
  EXPECT_GE(directions_of(drawn.subject(), "S", free), 7.0) << "errors of elements' own";
  EXPECT_EQ(directions_of(drawn.subject(), "y", get(drawn.oracle.exact, "y")), kInfinity);
}

}  // namespace
}  // namespace samestate

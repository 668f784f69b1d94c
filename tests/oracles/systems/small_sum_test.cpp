/// The group-limited router with scores so small that the 1e-20 that public code adds to their sum is visible
/// in fp32.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/oracles/systems/drawn_call.h"

namespace samestate {
namespace {

TEST(SmallSum, OfScoresMayHaveWhatPublicCodeAdds) {
  for (const char* form : {"gathered", "ordered"}) {
    for (const double logit : {-38.0, -20.0}) {
      DrawnSubject of("group_limited_router", form, 3, {{"D", 1}, {"G", 1}, {"N", 4}, {"M", 1}, {"K", 2}},
                      "fp32", 5);
      of.inputs.at("x").setConstant(logit);
      for (Index i = 0; i < 4; ++i) of.inputs.at("router").data()[i] = 1.0 + static_cast<double>(i) / 64.0;
      of.judge();
      const Matrix<double>& exact = get(of.oracle.exact, "weights");
      const Matrix<double>& tolerance = get(of.oracle.tolerance, "weights");
      const bool small = logit < -30.0;
      for (Index t = 0; t < 3; ++t) {
        double sum = 0.0;
        for (Index i = 0; i < 4; ++i) {
          if (exact(t, i) != 0.0) sum += get(of.oracle.exact, "probabilities")(t, i);
        }
        for (Index i = 0; i < 4; ++i) {
          const double added = std::abs(exact(t, i)) * (1.0 - sum / (sum + 1e-20));
          if (small) {
            EXPECT_GE(tolerance(t, i), added) << form << " " << t << " " << i;
          } else if (exact(t, i) != 0.0) {
            // A weight that is off by a ten thousandth is wrong with ordinary scores.
            EXPECT_LT(tolerance(t, i), 1e-4 * std::abs(exact(t, i)));
          }
        }
        EXPECT_EQ(get(of.oracle.undecided, "weights")(t, 0), small) << form;
      }
    }
  }
}

}  // namespace
}  // namespace samestate

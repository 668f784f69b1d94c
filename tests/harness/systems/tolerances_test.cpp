#include "harness/systems/tolerances.h"

#include <gtest/gtest.h>

#include <string>

#include "optimized/kernel.h"
#include "optimized/operator_kernel.h"
#include "tests/kernel_table.h"

namespace samestate {
namespace {

// Blocks are cut from whole outputs just as oracle and judge cut them, heads and sequences apart.
TEST(Tolerances, BlocksOfARunAreThoseThatItWasHeldAgainst) {
  for (const std::string line :
       {"v1 gated_delta_rule chunk=4 T=9 B=2 Hk=2 Hv=4 dk=3 dv=5",
        "v1 delta_rule form=recurrent T=3 Hv=2 dk=2 dv=7",
        "v1 retention form=packed chunk=4 lengths=0,5,1,6 Hv=3 dk=4 dv=2 state=random",
        "v1 linear_attention form=decode prefill=3 T=6 B=3 dk=2 dv=3",
        "v1 linear_attention_normalised form=decode prefill=3 T=7 B=2 dk=4 dv=4",
        "v1 rms_norm form=fused T=4 D=6 B=2"}) {
    const Case c = parse_case(line);
    const Resolved r(c);
    const TolerancesOfCase of = tolerances_of(c, table());
    ASSERT_FALSE(of.expected.empty()) << line;
    const std::vector<OutputBlock> again =
        blocks_of(r, r.system->outputs(r, of.inputs, table().choose(r), {r.layout, 1}), of.expected);
    ASSERT_EQ(again.size(), of.actual.size()) << line;
    for (std::size_t i = 0; i < again.size(); ++i) {
      EXPECT_EQ(again[i].output, of.actual[i].output) << line;
      EXPECT_EQ(again[i].values, of.actual[i].values) << line << ", block " << i;
      // No two blocks hold the same, so that one in another's place would be seen.
      for (std::size_t j = 0; j < i; ++j) {
        const Matrix<double>&one = again[i].values, &other = again[j].values;
        const bool alike = one.size() > 0 && one.rows() == other.rows() && one.cols() == other.cols();
        EXPECT_FALSE(alike && one == other) << line << ": " << i << " and " << j;
      }
    }
  }
  const Resolved r(parse_case("v1 retention T=3"));
  EXPECT_TRUE(blocks_of(r, {}, {{"o", Axis::tokens, {}, 0, 0}}).empty());
}

TEST(Tolerances, EachOutputHasItsFigures) {
  const TolerancesOfCase of =
      tolerances_of(parse_case("v1 gated_delta_rule chunk=8 T=40 Hv=2 dk=16 dv=8 contract=bf16"), table());
  ASSERT_EQ(of.outputs.size(), 2U);
  EXPECT_EQ(of.outputs[0].output, "o");
  EXPECT_EQ(of.outputs[1].output, "final_state");
  EXPECT_FALSE(of.outputs[0].state);
  EXPECT_TRUE(of.outputs[1].state);
  for (const OutputTolerance& out : of.outputs) {
    EXPECT_GT(out.measured.rms, 0.0);
    EXPECT_LT(out.measured.row, out.limit.row);
    EXPECT_LT(out.limit.row, out.worst_case);
    EXPECT_GT(out.predicted, 0.0);
    EXPECT_LT(out.predicted, out.limit.row);
  }
}

}  // namespace
}  // namespace samestate

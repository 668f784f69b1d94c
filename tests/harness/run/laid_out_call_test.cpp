#include "harness/run/laid_out_call.h"

#include <gtest/gtest.h>

#include "harness/cases/resolved.h"
#include "harness/run/kernel_table.h"

namespace samestate {
namespace {

std::unique_ptr<WholeCall> whole_of(const char* line) {
  const Resolved r(parse_case(line));
  return r.system->whole_call(r, 1);
}

StridedTensor output_of(const KernelCall& call, std::string_view name) {
  return elements_of(*call.output(name));
}

TEST(LaidOutCall, HasTheWholeCallsValuesWithGapsBetweenThem) {
  for (const char* line : {"v1 gated_delta_rule form=recurrent B=2 T=3 Hk=2 Hv=4 dk=4 dv=3 state=random",
                           "v1 rms_norm form=fused B=2 T=3 H=4 D=8"}) {
    const auto whole = whole_of(line);
    for (const Layout layout : {Layout::padded, Layout::fused, Layout::permuted}) {
      const LaidOutCall laid(*whole, layout);
      ASSERT_EQ(laid.call().inputs.size(), whole->call().inputs.size());
      bool strided = false;
      for (std::size_t i = 0; i < laid.call().inputs.size(); ++i) {
        const CallTensor &x = laid.call().inputs[i], &dense = whole->call().inputs[i];
        EXPECT_EQ(x.shape, dense.shape) << line;
        EXPECT_EQ(values_of(elements_of(x)), values_of(elements_of(dense))) << line;
        strided = strided || !x.dense();
      }
      EXPECT_TRUE(strided || (layout == Layout::fused && laid.call().inputs.size() < 3)) << line;
    }
  }
}

TEST(LaidOutCall, GivesBackWhatWasWrittenAndSeesWhatWasWrittenBeside) {
  const auto whole = whole_of("v1 retention form=recurrent T=2 Hk=2 dk=3 dv=5");
  const LaidOutCall laid(*whole, Layout::padded);
  const StridedTensor o = output_of(laid.call(), "o");
  float next = 0.0F;
  visit(o, [&](float& element) { element = next++; });
  visit(output_of(laid.call(), "final_state"), [](float& element) { element = 1.0F; });
  laid.give_back();
  EXPECT_EQ(output_of(whole->call(), "o").data[0], 0.0F);
  EXPECT_EQ(output_of(whole->call(), "o").data[19], 19.0F) << "row-major again";
  o.data[5] = 3.0F;  // behind the first head's row
  EXPECT_THROW(laid.give_back(), Trespass);
}

TEST(LaidOutCall, SeesAnInputThatWasEdited) {
  const auto whole = whole_of("v1 retention form=recurrent T=2 dk=3 dv=5");
  const LaidOutCall laid(*whole, Layout::sliced);
  visit(output_of(laid.call(), "o"), [](float& element) { element = 1.0F; });
  elements_of(*laid.call().input("k")).data[0] += 1.0F;
  EXPECT_THROW(laid.give_back(), Trespass);
}

}  // namespace
}  // namespace samestate

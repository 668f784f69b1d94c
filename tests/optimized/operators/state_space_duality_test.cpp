#include <gtest/gtest.h>

#include <string>

#include "optimized/operator_kernel.h"
#include "reference/error.h"

namespace samestate {
namespace {

TEST(StateSpaceKernels, AChunkHoldsATokenAtLeast) {
  int seen = 0;
  for (const OperatorKernel& kernel : operator_kernels()) {
    if (kernel.form != "chunked" || kernel.device != "cpu") continue;  // a device may not be there to refuse
    if (kernel.system != "selective_scan" && kernel.system != "state_space_duality" &&
        kernel.system != "mamba_mixer" && kernel.system != "mamba2_mixer") {
      continue;
    }
    ++seen;
    OperatorArguments call;
    call.tokens = 2;
    call.chunk = 0;
    EXPECT_THROW((void)kernel.run(call, Contract{}), Error) << kernel.name;
  }
  EXPECT_EQ(seen, 4);
}

}  // namespace
}  // namespace samestate

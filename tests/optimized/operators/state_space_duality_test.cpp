#include <gtest/gtest.h>

#include <string>

#include "optimized/operator_kernel.h"
#include "reference/error.h"

namespace samestate {
namespace {

TEST(StateSpaceKernels, AChunkHoldsATokenAtLeast) {
  int on_cpu = 0;  // a build without nvcc has these alone
  for (const OperatorKernel& kernel : operator_kernels()) {
    if (kernel.form != "chunked") continue;
    if (kernel.system != "selective_scan" && kernel.system != "state_space_duality" &&
        kernel.system != "mamba_mixer" && kernel.system != "mamba2_mixer") {
      continue;
    }
    if (kernel.device == "cpu") ++on_cpu;
    OperatorArguments call;
    call.tokens = 2;
    call.chunk = 0;
    try {
      // A device that is not there refuses first.
      EXPECT_EQ(kernel.run(call, Contract{}).kind, Outcome::Kind::no_device) << kernel.name;
      EXPECT_EQ(kernel.device, "cuda") << kernel.name;
    } catch (const Error&) {
    }
  }
  EXPECT_EQ(on_cpu, 4);
}

}  // namespace
}  // namespace samestate

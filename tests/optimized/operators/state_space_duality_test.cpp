#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "optimized/operator_kernel.h"
#include "reference/error.h"

namespace samestate {
namespace {

TEST(StateSpaceKernels, AChunkHoldsATokenAtLeast) {
  int on_cpu = 0, on_device = 0;  // a build without nvcc has none of the latter
  for (const OperatorKernel& kernel : operator_kernels()) {
    if (kernel.form != "chunked") continue;
    if (kernel.system != "selective_scan" && kernel.system != "state_space_duality" &&
        kernel.system != "mamba_mixer" && kernel.system != "mamba2_mixer") {
      continue;
    }
    ++(kernel.device == "cpu" ? on_cpu : on_device);
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
  const auto kernels_on_device = std::ranges::count(operator_kernels(), "cuda", &OperatorKernel::device);
  EXPECT_EQ(on_device, kernels_on_device > 0 ? 2 : 0);
}

}  // namespace
}  // namespace samestate

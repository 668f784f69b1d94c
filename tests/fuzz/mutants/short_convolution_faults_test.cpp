#include "tests/fuzz/mutants/faults.h"

namespace samestate {
namespace {

using namespace planted;

constexpr const char* kKernel = "cpu.short_convolution.scatter";

TEST(ShortConvolutionFaults, Die) {
  expect_killed({
      misread("kernel turned round", kKernel,
              [](Damaged& c) {
                c.groups("kernel", c.width("kernel"), [](std::span<float> w) { std::ranges::reverse(w); });
              }),
      misread("what lies before the call forgotten", kKernel, [](Damaged& c) { c.fill("state", 0.0F); }),
      misread(
          "oldest tap dropped", kKernel,
          [](Damaged& c) { c.groups("kernel", c.width("kernel"), [](std::span<float> w) { w[0] = 0.0F; }); }),
      misread("no bias", kKernel,
              [](Damaged& c) {
                if (c.call.parameter("bias") != 0) c.fill("bias", 0.0F);
              }),
      misread("activation always", kKernel, [](Damaged& c) { c.set("activation", 1); }),
      misread("activation never", kKernel, [](Damaged& c) { c.set("activation", 0); }),
      miswritten("state of the token before", kKernel,
                 [](Damaged& c) {
                   const std::span<float> state = c.output("state");
                   const auto C = static_cast<std::ptrdiff_t>(c.call.parameter("C"));
                   if (std::ssize(state) > C) std::rotate(state.begin(), state.end() - C, state.end());
                 }),
      miswritten("state not carried through an empty call or a short one", kKernel,
                 [](Damaged& c) {
                   if (c.call.tokens < c.call.parameter("W") - 1)
                     std::ranges::copy(c.input("state"), c.output("state").begin());
                 }),
  });
}

}  // namespace
}  // namespace samestate

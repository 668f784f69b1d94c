#include "tests/fuzz/mutants/faults.h"

namespace samestate {
namespace {

using namespace planted;

constexpr const char* kKernel = "cpu.activation_gates.branchless";

TEST(ActivationGateFaults, Die) {
  expect_killed({
      misread("no dt_bias", kKernel, [](Damaged& c) { c.fill("dt_bias", 0.0F); }),
      misread("e^-A_log", kKernel, [](Damaged& c) { c.each("A_log", [](float x) { return -x; }); }),
      misread("a and b exchanged", kKernel,
              [](Damaged& c) { std::ranges::swap_ranges(c.input("a"), c.input("b")); }),
      misread("rates of the next head", kKernel,
              [](Damaged& c) {
                const std::span<float> A = c.input("A_log");
                std::rotate(A.begin(), A.begin() + static_cast<std::ptrdiff_t>(A.size() > 1), A.end());
              }),
      miswritten("e^g for g", kKernel,
                 [](Damaged& c) {
                   for (float& g : c.output("g")) g = std::exp(g);
                 }),
      miswritten("2 sigma(b)", kKernel,
                 [](Damaged& c) {
                   for (float& beta : c.output("beta")) beta *= 2.0F;
                 }),
      misread("softplus turned linear above 5", kKernel,
              [](Damaged& c) {
                c.each("a", [](float a) { return a > 5.0F ? a + std::log1p(-std::exp(-a)) : a; });
              }),
  });
}

}  // namespace
}  // namespace samestate

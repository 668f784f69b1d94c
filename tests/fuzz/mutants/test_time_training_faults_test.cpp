#include "tests/fuzz/mutants/faults.h"

namespace samestate::planted {
namespace {

constexpr const char* kGradient = "cpu.gradient_step.delta_rule";
constexpr const char* kProximal = "cpu.proximal_step.delta_rule";

void next_keys(Damaged& call) {
  call.groups("k", call.call.tokens * call.width("k"),
              [&](std::span<float> k) { std::rotate(k.begin(), k.begin() + call.width("k"), k.end()); });
}

TEST(TestTimeTrainingFaults, TheEdgesKillEach) {
  expect_killed({
      misread("the loss without its half", kGradient,
              [](Damaged& call) { call.each("eta", [](float eta) { return 2.0F * eta; }); }),
      misread("no learning rate", kGradient, [](Damaged& call) { call.fill("eta", 1.0F); }),
      misread("keys of the next token", kGradient, next_keys),
      misread("up the gradient", kGradient,
              [](Damaged& call) { call.each("eta", [](float eta) { return -eta; }); }),
      mistaken_for("the proximal step", kGradient, kProximal),
      misread("the loss without its half", kProximal,
              [](Damaged& call) { call.each("eta", [](float eta) { return 2.0F * eta; }); }),
      misread("1 / |k|^2 for eta / (1 + eta |k|^2)", kProximal,
              [](Damaged& call) { call.fill("eta", 1e12F); }),
      misread("keys of the next token", kProximal, next_keys),
      mistaken_for("the explicit step", kProximal, kGradient),
  });
}

}  // namespace
}  // namespace samestate::planted

#include "tests/fuzz/mutants/faults.h"

namespace samestate {
namespace {

using namespace planted;

void times(Damaged& call, std::string_view name, float factor) {
  call.each(name, [factor](float x) { return x * factor; });
}
float root(std::int64_t n) { return std::sqrt(static_cast<float>(n)); }

// Epsilon does not scale with x: where x is 2^20 times larger it is gone, where x is d^1/2 times larger it is
// epsilon / d.
void no_epsilon(Damaged& call) { times(call, "x", 0x1p20F); }
void epsilon_in_the_sum(Damaged& call) { times(call, "x", root(call.width("x"))); }
void weight_of_the_next_column(Damaged& call) {
  const std::span<float> w = call.input("weight");
  std::rotate(w.begin(), w.begin() + static_cast<std::ptrdiff_t>(w.size() > 1), w.end());
}
void weight_off_by_one(Damaged& call) {
  call.each("weight", [](float w) { return w - 1.0F; });
}
void mean_off_by_one(Damaged& call) {
  const auto D = static_cast<float>(call.width("x"));
  for (float& y : call.output("y")) y *= std::sqrt((D - 1.0F) / D);
}

TEST(NormFaults, Die) {
  expect_killed({
      misread("no epsilon", "cpu.rms_norm.fused", no_epsilon),
      misread("epsilon added to the sum", "cpu.rms_norm.fused", epsilon_in_the_sum),
      misread("zero-centred", "cpu.rms_norm.fused",
              [](Damaged& c) { c.each("weight", [](float w) { return w + 1.0F; }); }),
      misread("weight of the next column", "cpu.rms_norm.fused", weight_of_the_next_column),
      miswritten("mean over D - 1", "cpu.rms_norm.fused", mean_off_by_one),
      misread("no epsilon", "cpu.zero_centred_rms_norm.fused", no_epsilon),
      misread("w for 1 + w", "cpu.zero_centred_rms_norm.fused", weight_off_by_one),
      misread("weight of the next column", "cpu.zero_centred_rms_norm.fused", weight_of_the_next_column),
      misread("the residual forgotten", "cpu.residual_rms_norm.fused",
              [](Damaged& c) { c.fill("residual", 0.0F); }),
      misread("w for 1 + w", "cpu.residual_rms_norm.fused", weight_off_by_one),
      miswritten("x for x + residual", "cpu.residual_rms_norm.fused",
                 [](Damaged& c) { std::ranges::copy(c.input("x"), c.output("sum").begin()); }),
      miswritten("the norm for the sum", "cpu.residual_rms_norm.fused",
                 [](Damaged& c) { std::ranges::copy(c.output("y"), c.output("sum").begin()); }),
      mistaken_for("gate first", "cpu.gated_rms_norm.fused", "cpu.gate_first_rms_norm.fused"),
      misread("no epsilon", "cpu.gated_rms_norm.fused", no_epsilon),
      misread("the gate activated twice", "cpu.gated_rms_norm.fused",
              [](Damaged& c) { c.each("z", [](float z) { return z / (1.0F + std::exp(-z)); }); }),
      misread("x and gate exchanged", "cpu.gated_rms_norm.fused",
              [](Damaged& c) { std::ranges::swap_ranges(c.input("x"), c.input("z")); }),
      mistaken_for("norm first", "cpu.gate_first_rms_norm.fused", "cpu.gated_rms_norm.fused"),
      misread("no epsilon", "cpu.gate_first_rms_norm.fused", no_epsilon),
      mistaken_for("no gate", "cpu.gate_first_rms_norm.fused", "cpu.rms_norm.fused"),
      misread("no epsilon", "cpu.l2norm.fused", no_epsilon),
      miswritten("mean for sum", "cpu.l2norm.fused",
                 [](Damaged& c) {
                   for (float& y : c.output("y")) y *= root(c.width("x"));
                 }),
      misread("epsilon times the width", "cpu.l2norm.fused",
              [](Damaged& c) { times(c, "x", 1.0F / root(c.width("x"))); }),
  });
}

}  // namespace
}  // namespace samestate

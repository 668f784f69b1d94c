#include <cmath>

#include "reference/layers/gated_delta_net.h"
#include "tests/fuzz/mutants/faults.h"

namespace samestate::planted {
namespace {

constexpr const char* kLayer = "cpu.gated_delta_net.chunked";
constexpr const char* kOutput = "cpu.gated_delta_net_output.fused";

GatedDeltaNetShape shape_of(const OperatorArguments& call) {
  GatedDeltaNetShape shape;
  shape.key_heads = call.parameter("Hk");
  shape.value_heads = call.parameter("Hk") * call.parameter("R");
  shape.key_width = call.parameter("dk");
  shape.value_width = call.parameter("dv");
  return shape;
}

/// A weight whose rows are taken to be flat: what should be row to[i] is row i.
void as_if_flat(std::span<float> weight, const std::vector<Index>& to, std::int64_t columns) {
  const std::vector<float> rows(weight.begin(), weight.end());
  for (std::size_t i = 0; i < to.size(); ++i) {
    std::copy_n(rows.begin() + static_cast<std::int64_t>(i) * columns, columns,
                weight.begin() + to[i] * columns);
  }
}

/// The halves of every group of rows of the small projection exchanged: a for b.
void exchange_gates(Damaged& call) {
  const std::int64_t half = call.call.parameter("R") * call.width("in_proj_ba");
  call.groups("in_proj_ba", 2 * half,
              [half](std::span<float> rows) { std::rotate(rows.begin(), rows.begin() + half, rows.end()); });
}

TEST(GatedDeltaNetFaults, TheEdgesKillEach) {
  expect_killed({
      misread("in_proj_qkvz read as flat", kLayer,
              [](Damaged& call) {
                as_if_flat(call.input("in_proj_qkvz"), grouped_rows(shape_of(call.call)).qkvz,
                           call.width("in_proj_qkvz"));
              }),
      misread("in_proj_ba read as flat", kLayer,
              [](Damaged& call) {
                as_if_flat(call.input("in_proj_ba"), grouped_rows(shape_of(call.call)).ba,
                           call.width("in_proj_ba"));
              }),
      misread("a for b and b for a", kLayer, exchange_gates),
      misread("no dt_bias", kLayer, [](Damaged& call) { call.fill("dt_bias", 0.0F); }),
      misread("the rate as it is stored, in logarithm", kLayer,
              [](Damaged& call) {
                call.each("A_log", [](float a) { return std::log(std::max(std::fabs(a), 1e-3F)); });
              }),
      misread("taps in the order of a convolution", kLayer,
              [](Damaged& call) {
                call.groups("conv1d", call.call.parameter("W"),
                            [](std::span<float> taps) { std::reverse(taps.begin(), taps.end()); });
              }),
      misread("convolution state not carried", kLayer, [](Damaged& call) { call.fill("convolution", 0.0F); }),
      misread("state not carried", kLayer, [](Damaged& call) { call.fill("S", 0.0F); }),
      misread("padding not masked", kLayer, [](Damaged& call) { call.fill("mask", 1.0F); }),
      misread("norm weight as 1 + w", kLayer,
              [](Damaged& call) { call.each("norm", [](float w) { return 1.0F + w; }); }),
      miswritten("the rule without its scale", kLayer,
                 [](Damaged& call) {
                   const auto root = std::sqrt(static_cast<float>(call.call.parameter("dk")));
                   for (float& x : call.output("core")) x *= root;
                 }),
      misread("no gate", kOutput, [](Damaged& call) { call.fill("z", 1.0F); }),
      misread("gate of the neighbouring column", kOutput,
              [](Damaged& call) {
                call.groups("z", call.width("z"), [](std::span<float> row) {
                  std::rotate(row.begin(), row.begin() + 1, row.end());
                });
              }),
      misread("norm weight as 1 + w", kOutput,
              [](Damaged& call) { call.each("norm", [](float w) { return 1.0F + w; }); }),
      misread("no epsilon", kOutput,
              [](Damaged& call) { call.each("core", [](float x) { return 0x1p20F * x; }); }),
  });
}

}  // namespace
}  // namespace samestate::planted

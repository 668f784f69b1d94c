#include <algorithm>
#include <cmath>

#include "fuzz/mutants/operators/changed_call.h"
#include "reference/layers/gated_delta_net.h"

/// The Gated DeltaNet layer and its output: M26, M30, M46, M47, M52, M65, M66, and gates, rates, epsilon.
namespace samestate::mutants {
namespace {

using Call = ChangedCall;

ProjectionRows rows_of(const Call& c) {
  GatedDeltaNetShape shape;
  shape.key_heads = c.at("Hk");
  shape.value_heads = c.at("Hk") * c.at("R");
  shape.key_width = c.at("dk");
  shape.value_width = c.at("dv");
  return grouped_rows(shape);
}

/// Treats a weight's rows as flat: row i becomes the row that belongs at to[i].
void as_if_flat(Call& c, std::string_view name, const std::vector<Index>& to) {
  const std::span<float> weight = c.input(name);
  const std::vector<float> rows(weight.begin(), weight.end());
  const std::int64_t width = c.width(name);
  for (std::size_t i = 0; i < to.size(); ++i)
    std::copy_n(rows.begin() + static_cast<std::int64_t>(i) * width, width, weight.begin() + to[i] * width);
}
void flat_projection(Call& c) { as_if_flat(c, "in_proj_qkvz", rows_of(c).qkvz); }
void flat_gates(Call& c) { as_if_flat(c, "in_proj_ba", rows_of(c).ba); }

/// Exchanges the halves of every group of rows of the small projection.
void a_and_b_exchanged(Call& c) {
  const std::int64_t half = c.at("R") * c.width("in_proj_ba");
  each_row(c.input("in_proj_ba"), 2 * half, [half](std::span<float> rows) { rotate(rows, half); });
}
void gate_of_the_next_column(Call& c) {
  each_row(c.input("z"), c.width("z"), [](std::span<float> row) { rotate(row, 1); });
}

const OperatorFault kWeightPlusOne = {"M52", "weight_plus_one", "1 + w where w is meant",
                                      misread(mapped("norm", [](float w) { return 1.0F + w; }))};

}  // namespace

std::vector<Mutant> gated_delta_net_mutants() {
  std::vector<Mutant> out;
  add_faults(
      out, "cpu.gated_delta_net.chunked",
      {{"M26", "state_not_read", "every call starts from zero", misread(filled("S", 0.0F))},
       {"M30", "padding_not_masked", "the padding mask is ignored", misread(filled("mask", 1.0F))},
       {"M46", "flat_projection", "q, k, v, z read as four blocks where columns are grouped by key head",
        misread(flat_projection)},
       {"M46", "flat_gates", "b, a read as two blocks where columns are grouped by key head",
        misread(flat_gates)},
       {"M47", "no_scale", "the rule's scale is ignored",
        miswritten(scaled("core", [](const Call& c) { return root_of(c.at("dk")); }))},
       kWeightPlusOne,
       {"M65", "taps_reversed", "convolution instead of cross-correlation", misread(reversed("conv1d"))},
       {"M66", "convolution_state_not_read", "every call's convolution starts from zero",
        misread(filled("convolution", 0.0F))},
       {"F", "a_and_b_exchanged", "a is taken for b and b for a", misread(a_and_b_exchanged)},
       {"F", "no_bias", "dt_bias is left out", misread(filled("dt_bias", 0.0F))},
       {"F", "rate_without_exponential", "the rate as it is stored, in logarithm",
        misread(mapped("A_log", [](float a) { return std::log(std::max(std::fabs(a), 1e-3F)); }))}});
  add_faults(out, "cpu.gated_delta_net_output.fused",
             {kWeightPlusOne,
              {"F", "no_gate", "the gate is that of z = 1", misread(filled("z", 1.0F))},
              {"F", "gate_of_the_next_column", "the gate is that of the next column",
               misread(gate_of_the_next_column)},
              {"F", "no_epsilon", "epsilon is left out",
               misread(mapped("core", [](float x) { return 0x1p20F * x; }))}});
  return out;
}

}  // namespace samestate::mutants

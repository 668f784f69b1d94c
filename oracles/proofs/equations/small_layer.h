#pragma once

#include "oracles/proofs/identities/draw.h"
#include "reference/gated_delta_rule.h"
#include "reference/layers/gated_delta_net.h"

namespace samestate {

/// The Gated DeltaNet layer at a small size, its inputs and output.
struct SmallLayer {
  GatedDeltaNetShape shape{2, 4, 3, 2};
  GatedDeltaNetWeights<double> weights;
  Matrix<double> x;
  GatedDeltaNetOutput<double> out;

  SmallLayer() {
    IdentityDraw<double> draw(1);
    weights.in_proj_qkvz = draw.normal(2 * (shape.keys() + shape.values()), 5);
    weights.in_proj_ba = draw.normal(2 * shape.value_heads, 5);
    weights.conv1d = draw.normal(shape.channels(), 4);
    weights.A_log = draw.normal_vector(shape.value_heads);
    weights.dt_bias = draw.normal_vector(shape.value_heads);
    weights.norm = draw.uniform_vector(shape.value_width, 0.5, 1.5);
    weights.out_proj = draw.normal(5, shape.values());
    x = draw.normal(9, 5);
    out = run();
  }
  [[nodiscard]] GatedDeltaNetProjections<double> projections() const {
    return split_projections(linear(x, weights.in_proj_qkvz), linear(x, weights.in_proj_ba), shape);
  }
  [[nodiscard]] GatedDeltaNetOutput<double> run() const {
    return gated_delta_net(x, weights, shape, empty_gated_delta_net_cache(shape, weights),
                           [](const Sequence<double>& head) { return recurrent<GatedDeltaRule>(head); });
  }
};

}  // namespace samestate

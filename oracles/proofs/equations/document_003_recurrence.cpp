#include <cmath>

#include "oracles/proofs/equations/computation.h"
#include "oracles/proofs/equations/data.h"
#include "oracles/proofs/equations/dendritic_case.h"
#include "oracles/proofs/equations/groups.h"
#include "oracles/proofs/equations/planted.h"

/// Document 003, DendAttn: gates, windows, recurrence, sum over windows.
namespace samestate::document_003_recurrence_equations {
namespace {

using V = LedgerVerdict;
using M = Matrix<double>;

const costs::DendriticConfig& c = kDendritic;
const costs::DendriticShape& s = kDendriticShape;

Finding write_strengths() {
  const Rearrangement merged("b l (e h) -> e b l h", {1, 1, 6}, {{"h", 2}});
  const SmallDendriticLayer layer;
  const M beta = logistic(linear(layer.x, layer.p.b_proj));
  const DendriticSizes& sizes = layer.sizes();
  const Sequence<double>& head = layer.core.heads[static_cast<std::size_t>(sizes.virtual_head(0, 0, 1))];
  return Computation()
      .shape("b l (e h) -> e b l h",
             rearranged("b l (e h) -> e b l h", tokens_of({s.gates}), {{"h", c.heads}}), {8, 2, 1024, 8})
      .shape("sources at e = 3, h = 2: index e H + h", merged.sources(), {0, 1, 2, 3, 4, 5})
      .agree("beta of the shared branch of head 1, column 0 H + 1", head.beta, beta.col(1).eval())
      .holds();
}

Finding log_decays() {
  const SmallDendriticLayer layer;
  const DendriticSizes& sizes = layer.sizes();
  const M a = linear(layer.x, layer.p.a_proj);
  Vector<double> g(11);
  for (Index t = 0; t < 11; ++t) {
    g(t) = -std::exp(layer.p.A_log(1)) * std::log(1.0 + std::exp(a(t, 1) + layer.p.dt_bias(1)));
  }
  const Sequence<double>& head = layer.core.heads[static_cast<std::size_t>(sizes.virtual_head(0, 0, 1))];
  return Computation()
      .shape("A_log, dt_bias", {s.gates}, {64})
      .agree("g of the shared branch of head 1, and the formula as printed", head.g, g)
      .relation("g <= 0", head.g.maxCoeff() <= 0.0)
      .holds();
}

Finding masked_gates() {
  const SmallDendriticLayer layer;
  const DendriticSizes& sizes = layer.sizes();
  bool zero = true;
  for (Index h = 0; h < sizes.heads; ++h) {
    for (Index e = 0; e < sizes.branches(); ++e) {
      const Sequence<double>& head = layer.core.heads[static_cast<std::size_t>(sizes.virtual_head(0, e, h))];
      for (Index t = 0; t < 11; ++t) {
        const bool active = layer.out.routing[static_cast<std::size_t>(h)].mask(t, e);
        zero = zero && (active || (head.g(t) == 0.0 && head.beta(t) == 0.0));
      }
    }
  }
  return Computation()
      .relation("g = 0 and beta = 0 on masked tokens, so alpha = 1", zero)
      .identity("dendritic_inactive_keeps_state")
      .holds();
}

Finding merged_heads() {
  Computation computation;
  for (const auto& [what, width] : {std::pair{"q, k", c.head_width}, {"v", s.value_width}}) {
    computation.shape(what,
                      rearranged("e b l h d -> b l (e h) d", {c.branches, c.batch, c.length, c.heads, width}),
                      {2, 1024, 64, width});
  }
  return computation
      .shape("g, beta", rearranged("e b l h -> b l (e h)", {c.branches, c.batch, c.length, c.heads}),
             {2, 1024, 64})
      .holds();
}

Finding window_blocks() {
  const OverlapWindows windows = overlap_windows(c.head_width, c.windows, c.overlap);
  Index twice = 0;
  for (Index channel = 0; channel < 256; ++channel) twice += windows.multiplicity(channel) == 2 ? 1 : 0;
  return Computation()
      .shape("block 0", {windows.begin(0), windows.begin(0) + windows.width}, {0, 160})
      .shape("block 1", {windows.begin(1), windows.begin(1) + windows.width}, {96, 256})
      .relation("channels 96 and 159 are in both, 95 and 160 in one",
                windows.multiplicity(96) == 2 && windows.multiplicity(159) == 2 &&
                    windows.multiplicity(95) == 1 && windows.multiplicity(160) == 1)
      .count("channels in both", twice, 64)
      .holds();
}

Finding virtual_heads() {
  const DendriticSizes sizes = document_sizes();
  bool in_order = true;
  for (Index n = 0; n < 2; ++n) {
    for (Index e = 0; e < 8; ++e) {
      for (Index h = 0; h < 8; ++h) in_order = in_order && sizes.virtual_head(n, e, h) == n * 64 + e * 8 + h;
    }
  }
  return Computation()
      .shape("q, k", tokens_of({s.virtual_heads, s.window_width}), {2, 1024, 128, 160})
      .relation("virtual head = 64 n + 8 e + h, window-major", in_order)
      .identity("windows_overlap_add")
      .holds();
}

Finding tiled_values() {
  const Rearrangement tile("h -> (k h)", {3}, {{"k", 2}});
  return Computation()
      .shape("v",
             rearranged("b l h d -> b l (k h) d", tokens_of({s.gates, s.value_width}), {{"k", c.windows}}),
             {2, 1024, 128, 512})
      .shape("g, beta", rearranged("b l h -> b l (k h)", tokens_of({s.gates}), {{"k", c.windows}}),
             {2, 1024, 128})
      .shape("heads 0, 1, 2 repeated 'h -> (k h)'", tile.sources(), {0, 1, 2, 0, 1, 2})
      .identity("dendritic_interleaved_values")
      .holds();
}

Finding missing_normalisation() {
  const SmallDendriticLayer layer;
  const Sequence<double>& head = layer.core.heads[0];
  return Computation()
      .shape("q, k", tokens_of({s.virtual_heads, s.window_width}), {2, 1024, 128, 160})
      .rounds_to("w^-1/2 of the document", 1.0 / std::sqrt(static_cast<double>(s.window_width)), 0.0791, 4)
      .equal("scale of the small layer, 5^-1/2", head.scale, 1.0 / std::sqrt(5.0))
      .identity("dendritic_scale_of_head_width")
      .identity("dendritic_l2norm_before_windowing")
      .remark("missing in the text: l2norm of q and k in each window, scale w^-1/2")
      .resolved();
}

Finding state_equation() {
  // A token that the branch does not use (g = beta = 0), after one that wrote 1.
  const Sequence<double> masked = scalar_sequence({1, 0}, {1, 0}, {1, 0}, {-0.5, 0});
  const double kept = recurrent<GatedDeltaRule>(masked).state(0, 0);
  double literal = 0.0;
  for (Index t = 0; t < 2; ++t)
    literal = masked.g(t) * literal + masked.beta(t) * masked.k(t, 0) * masked.v(t, 0);
  // Decays alone, g = -3 five times, from S = 1.
  const Sequence<double> decaying =
      scalar_sequence({0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}, {-3, -3, -3, -3, -3}, 1.0);
  return Computation()
      .equal("S after a masked token", kept, 1.0)
      .contrast("S after a masked token", literal, kept)
      .equal("S after five tokens of g = -3, from 1", recurrent<GatedDeltaRule>(decaying).state(0, 0),
             std::exp(-15.0))
      .contrast("the same with g as the multiplier: sign flips and growth", std::pow(-3.0, 5),
                std::exp(-15.0))
      .identity("dendritic_decay_as_multiplier")
      .identity("dendritic_no_delta_term")
      .erratum();
}

Finding range_of_the_decay() {
  const auto g = [](double rate, double step) {
    const double a = std::log(std::expm1(step));  // softplus(a) = step
    const Vector<double> A_log = Vector<double>::Constant(1, std::log(rate));
    return log_decay(row_of({a}), A_log, Vector<double>::Zero(1).eval())(0, 0);
  };
  const Vector<double> sixteen = Vector<double>::Constant(1, std::log(16.0));
  const double strong = log_decay(row_of({5.0}), sixteen, Vector<double>::Zero(1).eval())(0, 0);
  return Computation()
      .rounds_to("A = 16, argument 5: g", strong, -80.1, 1)
      .contrast("least g", -16.0, strong)
      .equal("at the init, A -> 16, dt = 0.1: g", g(16.0, 0.1), -1.6)
      .relation("a multiplier in [-16, 0] would not be one: 0 < exp(g) <= 1",
                std::exp(strong) > 0.0 && std::exp(strong) < 1.0)
      .erratum();
}

Finding output_read() {
  const SmallDendriticLayer layer;
  const Sequence<double>& head = layer.core.heads[0];
  const Trajectory<double> run = recurrent<GatedDeltaRule>(head);
  return Computation()
      .shape("q [160] times S [160, 512]",
             einsum_shape("k,kv->v", {{s.window_width}, {s.window_width, s.value_width}}), {512})
      .agree("last output, scale q^T S", run.o.bottomRows(1).eval(),
             (head.scale * head.q.bottomRows(1) * run.state).eval())
      .contrast_all("q^T S without the scale", (head.q.bottomRows(1) * run.state).eval(),
                    run.o.bottomRows(1).eval())
      .remark("missing in the text: q is normalised in its window and scaled by 160^-1/2")
      .resolved();
}

Finding summed_windows() {
  const SmallDendriticLayer layer;
  const DendriticSizes& sizes = layer.sizes();
  M a = M::Zero(11, 6);  // head 0
  for (Index e = 0; e < 4; ++e) {
    const M sum = layer.out.o[static_cast<std::size_t>(sizes.virtual_head(0, e, 0))] +
                  layer.out.o[static_cast<std::size_t>(sizes.virtual_head(1, e, 0))];
    a += layer.out.routing[0].weights.col(e).asDiagonal() * sum;
  }
  return Computation()
      .shape("sum over k of [2, 1024, 64, 2, 512]",
             einsum_shape("blhkd->blhd", {tokens_of({s.gates, c.windows, s.value_width})}),
             {2, 1024, 64, 512})
      .agree("mixed branches of head 0 from summed windows", layer.head(layer.out.a, 0, 6), a)
      .identity("dendritic_mean_over_windows")
      .holds();
}

const Equation kRows[] = {
    {"DEND-21", "003", "L142-151", "gates", "beta = sigma(b_proj(x)), 2048 -> 64, '(e h) -> e b l h'", V::ok,
     write_strengths},
    {"DEND-22", "003", "L145-152", "gates",
     "g = -exp(A_log) softplus(a_proj(x) + dt_bias); A_log, dt_bias [64]", V::ok, log_decays},
    {"COST-11", "003", "L147", "costs", "b_proj, a_proj 131K each", V::ok,
     [] {
       return Computation()
           .count("weights 2048 -> 64", costs::linear_parameters(c.hidden, s.gates), 131072)
           .holds();
     }},
    {"DEND-23", "003", "L153-154", "gates", "beta, g <- beta, g * router_mask", V::ok, masked_gates},
    {"DEND-24", "003", "L163-169", "dendritic_attention",
     "'e b l h d -> b l (e h) d' for q, k, v; g, beta likewise", V::ok, merged_heads},
    {"DEND-25", "003", "L171-180", "overlap_windows", "w = (256 + (2-1) 64) / 2 = 160; step = 160 - 64 = 96",
     V::ok,
     [] {
       const OverlapWindows windows = overlap_windows(c.head_width, c.windows, c.overlap);
       return Computation()
           .count("w", windows.width, 160)
           .count("step", windows.stride, 96)
           .count("w of the formula", (c.head_width + (c.windows - 1) * c.overlap) / c.windows,
                  s.window_width)
           .holds();
     }},
    {"DEND-26", "003", "L182-191,517-536", "overlap_windows",
     "block 0 = [0:160], block 1 = [96:256], shared indices 96..159", V::ok, window_blocks},
    {"DEND-27", "003", "L193-195", "overlap_windows",
     "cat of the slices on the head axis: 64 x 2 = 128 virtual heads", V::ok, virtual_heads},
    {"DEND-28", "003", "L198-202", "dendritic_attention", "v, g, beta repeated 'h -> (k h)', k = 2", V::ok,
     tiled_values},
    {"DEND-29", "003", "L212-218", "gated_delta_rule", "chunk_gated_delta_rule(q, k, v, g, beta)",
     V::incomplete, missing_normalisation},
    {"DEND-30", "003", "L224", "dendritic_attention", "h in [0, 127], t in [0, 1023]", V::ok,
     [] {
       return Computation()
           .count("last virtual head", document_sizes().virtual_head(1, 7, 7), 127)
           .count("last token", c.length - 1, 1023)
           .holds();
     }},
    {"DEND-31", "003", "L228", "gated_delta_rule", "S_t = g_t S_{t-1} + beta_t (k_t^T (x) v_t)", V::erratum,
     state_equation},
    {"DEND-32", "003", "L231,236", "gated_delta_rule", "S and k (x) v are [160, 512]", V::ok,
     [] {
       const SmallDendriticLayer layer;
       return Computation()
           .shape("k (x) v", einsum_shape("k,v->kv", {{s.window_width}, {s.value_width}}), {160, 512})
           .shape("state of the small layer, [w, dv]",
                  {layer.out.cache.state[0].rows(), layer.out.cache.state[0].cols()}, {5, 6})
           .holds();
     }},
    {"DEND-33", "003", "L232", "gates", "g_t scalar, typically in [-16, 0]", V::erratum, range_of_the_decay},
    {"DEND-34", "003", "L233", "gates", "beta_t in [0, 1]", V::ok,
     [] {
       return Computation()
           .relation("0 < sigma(-700) and sigma(700) <= 1", logistic(-700.0) > 0.0 && logistic(700.0) <= 1.0)
           .equal("sigma(-800) underflows to", logistic(-800.0), 0.0)
           .identity("dendritic_gate_ranges")
           .holds();
     }},
    {"DEND-35", "003", "L234-235", "gated_delta_rule", "k_t [160], v_t [512]", V::ok,
     [] { return Computation().count("w", s.window_width, 160).count("dv", s.value_width, 512).holds(); }},
    {"DEND-36", "003", "L242-247", "gated_delta_rule", "o_t = q_t S_t", V::incomplete, output_read},
    {"COST-12", "003", "L252", "costs", "S [2, 128, 160, 512] = 26.2 MB, independent of L", V::erratum,
     [] { return finding_of_the_state_memory(c); }},
    {"DEND-37", "003", "L256", "dendritic_attention", "output o [2, 1024, 128, 512]", V::ok,
     [] {
       return Computation()
           .shape(
               "o",
               einsum_shape("blhk,bhkv->blhv", {tokens_of({s.virtual_heads, s.window_width}),
                                                {c.batch, s.virtual_heads, s.window_width, s.value_width}}),
               {2, 1024, 128, 512})
           .holds();
     }},
    {"DEND-38", "003", "L265-266", "dendritic_attention", "'b l (k h) d -> b l h k d', k = 2", V::ok,
     [] {
       const Rearrangement back("(k h) -> h k", {6}, {{"k", 2}});
       const Rearrangement tile("h -> (k h)", {3}, {{"k", 2}});
       Extents heads;
       for (const std::int64_t at : back.sources()) heads.push_back(tile.source(at));
       return Computation()
           .shape("b l (k h) d -> b l h k d",
                  rearranged("b l (k h) d -> b l h k d", tokens_of({s.virtual_heads, s.value_width}),
                             {{"k", c.windows}}),
                  {2, 1024, 64, 2, 512})
           .shape("heads after the tile of DEND-28 and this", heads, {0, 0, 1, 1, 2, 2})
           .holds();
     }},
    {"DEND-39", "003", "L268-271", "dendritic_attention", "sum over the window axis", V::ok, summed_windows},
};

}  // namespace

std::span<const Equation> rows() { return kRows; }

}  // namespace samestate::document_003_recurrence_equations

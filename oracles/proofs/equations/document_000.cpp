#include <cmath>

#include "oracles/proofs/equations/computation.h"
#include "oracles/proofs/equations/data.h"
#include "oracles/proofs/equations/groups.h"
#include "oracles/proofs/equations/model.h"
#include "oracles/proofs/equations/planted.h"
#include "oracles/proofs/equations/rearrange.h"
#include "reference/costs.h"
#include "reference/gated_delta_rule.h"
#include "reference/gates.h"
#include "reference/layers/gated_attention.h"
#include "reference/layers/gated_delta_net.h"

/// Document 000: the report on Qwen3-Next. Its numbers are compared with the model of document 001's config.
namespace samestate::document_000_equations {
namespace {

using V = LedgerVerdict;
using namespace equation_model;

/// The heads' channels as a shape [B, L, heads, width].
Extents heads_of(std::int64_t channels, std::int64_t width) {
  return Rearrangement("b l (h d) -> b l h d", {kBatch, kLength, channels}, {{"d", width}}).shape();
}

/// Two key heads that serve four value heads.
GatedDeltaNetShape small_layer() { return {2, 4, 3, 2}; }

Finding column_order(bool gates) {
  const GatedDeltaNetShape grouped = small_layer();
  GatedDeltaNetShape flat = grouped;
  flat.layout = ProjectionLayout::flat;
  IdentityDraw<double> draw(1);
  const Matrix<double> x = draw.normal(5, 3);
  const Matrix<double> qkvz = draw.normal(2 * (grouped.keys() + grouped.values()), 3);
  const Matrix<double> ba = draw.normal(2 * grouped.value_heads, 3);
  const ProjectionRows rows = grouped_rows(grouped);
  const Matrix<double> flat_qkvz = qkvz(rows.qkvz, Eigen::all);
  const Matrix<double> flat_ba = ba(rows.ba, Eigen::all);
  const auto split = [&](const Matrix<double>& wide, const Matrix<double>& narrow,
                         const GatedDeltaNetShape& shape) {
    return split_projections(linear(x, wide), linear(x, narrow), shape);
  };
  const auto a = split(qkvz, ba, grouped);
  const auto b = split(flat_qkvz, flat_ba, flat);
  const auto mistaken = split(qkvz, ba, flat);
  const GatedDeltaNetShape model{kModel.key_heads, kModel.value_heads, kModel.key_width, kModel.value_width};
  const ProjectionRows of_model = grouped_rows(model);
  Computation c;
  if (gates) {
    c.count("grouped row of b of value head 2, flat row 2", of_model.ba[2], 4)
        .agree("b, grouped weights and flat ones with permuted rows", a.b, b.b)
        .agree("a, the same", a.a, b.a)
        .contrast_all("b from grouped weights split flat, and split by group", mistaken.b, a.b);
  } else {
    c.count("grouped row of q of key head 1, flat row 128", of_model.qkvz[128], 768)
        .agree("q, k, v, grouped weights and flat ones with permuted rows", a.mixed, b.mixed)
        .agree("z, the same", a.z, b.z)
        .contrast_all("q, k, v from grouped weights split flat, and split by group", mistaken.mixed, a.mixed);
  }
  return c.identity("gdn_layer_flat_layout")
      .identity("gdn_layer_grouped_as_flat")
      .remark("resolution: grouped by key head, as checkpoints are (GDN-23, GDN-24)")
      .resolved();
}

Finding shape_swap(const char* what, std::int64_t printed_heads, std::int64_t channels) {
  const std::int64_t heads = heads_of(channels, 128)[2];
  const std::int64_t printed_sum = 32 * 128 + 16 * 128 + 16 * 128 + 32 * 128;
  return Computation()
      .contrast(std::string("heads of ") + what, static_cast<double>(printed_heads),
                static_cast<double>(heads))
      .count("printed q + k + v + z", printed_sum, kShape.projection_qkvz)
      .remark("the sum hides that q and v were swapped")
      .erratum();
}

Finding head_repeat() {
  const Rearrangement tile("h -> (r h)", {3}, {{"r", 2}});
  const Rearrangement interleave("h -> (h r)", {3}, {{"r", 2}});
  return Computation()
      .shape("repeat of heads 0, 1, 2 (tile)", tile.sources(), {0, 1, 2, 0, 1, 2})
      .shape("repeat_interleave", interleave.sources(), {0, 0, 1, 1, 2, 2})
      .contrast("key heads of value heads 0..5", text_of(tile.sources()), text_of(interleave.sources()))
      .count("heads of a 32-head q (GDN-4) after the repeat",
             Rearrangement("h -> (r h)", {32}, {{"r", 2}}).shape()[0], 64)
      .identity("gdn_layer_interleaved_key_heads")
      .identity("gdn_layer_tiled")
      .erratum();
}

Finding loop_bounds() {
  const Sequence<double> x = from_zero_state(drawn_sequence(3, 4, 2));
  const Trajectory<double> right = recurrent<GatedDeltaRule>(x);
  const Trajectory<double> skipped = recurrent<GatedDeltaRule>(x.slice(1, 3, x.initial_state));
  return Computation()
      .contrast("0-based slices that t = 1..3 visits of L = 3", "1, 2, 3", "0, 1, 2")
      .count("slice 3 is out of range: slices", right.o.rows(), 3)
      .contrast_all("state without token 0 and with it", skipped.state, right.state)
      .erratum();
}

Finding expand_axes() {
  std::string printed;
  try {
    printed = text_of(expanded_shape({kBatch, 32}, {-1, -1, 128, 128}));
  } catch (const std::exception&) {
    printed = "an error";
  }
  const Extents state = expanded_shape({kBatch, 32, 1, 1}, {-1, -1, 128, 128});
  return Computation()
      .contrast("expand of [2, 32] by (-1, -1, 128, 128)", printed, text_of(state))
      .shape("alpha[:, :, None, None] expands to", state, {kBatch, 32, 128, 128})
      .shape("beta[:, :, None] expands to", expanded_shape({kBatch, 32, 1}, {-1, -1, 128}), {kBatch, 32, 128})
      .erratum();
}

Finding missing_scale() {
  IdentityDraw<double> draw(1);
  Sequence<double> bare = from_zero_state(drawn_sequence(6, 5, 3));
  bare.q = draw.normal(6, 5);
  bare.k = draw.normal(6, 5, 0.4);
  bare.scale = 1.0;
  Sequence<double> full = bare;
  full.q = l2norm(bare.q);
  full.k = l2norm(bare.k);
  full.scale = 1.0 / std::sqrt(5.0);
  return Computation()
      .rounds_to("128^-1/2", 1.0 / std::sqrt(static_cast<double>(kModel.key_width)), 0.0884, 4)
      .contrast_all("o = q^T S bare, and with l2norm and scale", recurrent<GatedDeltaRule>(bare).o,
                    recurrent<GatedDeltaRule>(full).o)
      .shape("bhk,bhkv->bhv", einsum_shape("bhk,bhkv->bhv", {{kBatch, 32, 128}, {kBatch, 32, 128, 128}}),
             {kBatch, 32, 128})
      .identity("gdn_layer_no_scale")
      .resolved();
}

Finding stacked_outputs() {
  const Sequence<double> x = drawn_sequence(6, 4, 3);
  return Computation()
      .identical("row t of O is the output of step t", recurrent<GatedDeltaRule>(x).o,
                 decode<GatedDeltaRule>(x).o)
      .shape("b l (h d) -> b l h d", heads_of(kShape.value_dim, kModel.value_width),
             {kBatch, kLength, 32, 128})
      .holds();
}

Finding missing_output() {
  IdentityDraw<double> draw(1);
  const Matrix<double> o = draw.normal(4, 3);
  const Matrix<double> z = draw.normal(4, 3);
  const Vector<double> weight = draw.uniform_vector(3, 0.5, 1.5);
  const Matrix<double> zero = Matrix<double>::Zero(4, 3);
  return Computation()
      .contrast_all("O, and the norm gated by z that is missing", o, rms_norm_gated(o, z, weight, 1e-6))
      .identical("z = 0 gives 0", rms_norm_gated(o, zero, weight, 1e-6), zero)
      .count("weights of the projection 4096 -> 2048 that is missing",
             costs::linear_parameters(kShape.value_dim, kModel.hidden), 8388608)
      .resolved();
}

Finding attention_gate() {
  IdentityDraw<double> draw(1);
  GatedAttentionParameters<double> p;
  p.heads = 2;
  p.key_heads = 1;
  p.head_width = 4;
  p.rotary_width = 2;
  p.q_proj = draw.normal(16, 5);
  p.k_proj = draw.normal(4, 5);
  p.v_proj = draw.normal(4, 5);
  p.o_proj = draw.normal(5, 8);
  p.q_norm = draw.normal_vector(4, 0.1);
  p.k_norm = draw.normal_vector(4, 0.1);
  const Matrix<double> x = draw.normal(6, 5);
  const GatedAttentionOutput<double> out = gated_attention(x, p);
  for (const Index head : {0, 1}) p.q_proj.middleRows(head * 8 + 4, 4).setZero();
  const GatedAttentionOutput<double> closed = gated_attention(x, p);
  return Computation()
      .agree("gated = attended * sigma(gate), element by element", out.gated,
             out.attended.cwiseProduct(logistic(out.gate)).eval())
      .agree("gate = 0 gives half of plain attention", closed.gated, (0.5 * closed.attended).eval())
      .remark("the section is empty; resolution: EQUATIONS 5.7")
      .identity("gated_attention_open_gate")
      .identity("gated_attention_gate_missing")
      .resolved();
}

const Equation kRows[] = {
    {"CFG-1", "000", "L4", "qwen3_next", "layers = 48 = 12 x (3 Gated DeltaNet + 1 gated attention)", V::ok,
     [] {
       return Computation()
           .count("layers", kModel.layers, 48)
           .count("groups", kModel.layers / kModel.full_attention_interval, 12)
           .count("Gated DeltaNet layers", kShape.delta_layers, 12 * 3)
           .count("attention layers", kShape.attention_layers, 12)
           .holds();
     }},
    {"CFG-2", "000", "L5", "qwen3_next", "hidden width D = 2048", V::ok,
     [] { return Computation().count("hidden width of config.json", kModel.hidden, 2048).holds(); }},
    {"CFG-3", "000", "L12", "qwen3_next", "Q/K: 16 heads x 128 = 2048", V::ok,
     [] {
       return Computation()
           .count("16 x 128", costs::product({16, 128}), kShape.key_dim)
           .count("key_dim", kShape.key_dim, 2048)
           .holds();
     }},
    {"CFG-4", "000", "L13", "qwen3_next", "V: 32 heads x 128 = 4096", V::ok,
     [] {
       return Computation()
           .count("32 x 128", costs::product({32, 128}), kShape.value_dim)
           .count("value_dim", kShape.value_dim, 4096)
           .holds();
     }},
    {"GDN-1", "000", "L16", "gated_delta_net", "input X is [B, L, 2048]", V::ok,
     [] {
       return Computation()
           .shape("X W_qkvz",
                  einsum_shape("blc,cd->bld",
                               {{kBatch, kLength, 2048}, {kModel.hidden, kShape.projection_qkvz}}),
                  {kBatch, kLength, 12288})
           .holds();
     }},
    {"COST-1", "000", "L19-20", "costs", "W_qkvz is [2048, 12288], 12288 = k 2048 + v 4096 + z 4096 + q 2048",
     V::ok,
     [] {
       return Computation()
           .count("columns", kShape.projection_qkvz, 2048 + 4096 + 4096 + 2048)
           .count("weights", costs::linear_parameters(kModel.hidden, kShape.projection_qkvz), 25165824)
           .holds();
     }},
    {"COST-2", "000", "L21", "costs", "W_ba is [2048, 64]", V::ok,
     [] {
       return Computation()
           .count("columns, 32 for b and 32 for a", kShape.projection_ba, 64)
           .count("weights", costs::linear_parameters(kModel.hidden, kShape.projection_ba), 131072)
           .holds();
     }},
    {"GDN-2", "000", "L25", "gated_delta_net", "X W_qkvz = [q, k, v, z]", V::ambiguous,
     [] { return column_order(false); }},
    {"GDN-3", "000", "L26", "gated_delta_net", "X W_ba = [b, a]", V::ambiguous,
     [] { return column_order(true); }},
    {"GDN-4", "000", "L30", "gated_delta_net", "q is [B, L, 32, 128]", V::erratum,
     [] { return shape_swap("q", 32, kShape.key_dim); }},
    {"GDN-5", "000", "L31", "gated_delta_net", "k is [B, L, 16, 128]", V::ok,
     [] {
       return Computation().shape("k", heads_of(kShape.key_dim, 128), {kBatch, kLength, 16, 128}).holds();
     }},
    {"GDN-6", "000", "L32", "gated_delta_net", "v is [B, L, 16, 128]", V::erratum,
     [] { return shape_swap("v", 16, kShape.value_dim); }},
    {"GDN-7", "000", "L33", "gated_delta_net", "z is [B, L, 32, 128], projected with q, k, v", V::ok,
     [] {
       return Computation()
           .shape("z", heads_of(kShape.value_dim, 128), {kBatch, kLength, 32, 128})
           .count("channels of qkvz that are not convolved", kShape.projection_qkvz - kShape.convolved, 4096)
           .holds();
     }},
    {"GDN-8", "000", "L34-35", "gated_delta_net",
     "b and a are [B, L, 32]: one beta and one decay a value head", V::ok,
     [] {
       return Computation()
           .count("columns of b, and of a", kShape.projection_ba / 2, kModel.value_heads)
           .count("value heads", kModel.value_heads, 32)
           .holds();
     }},
    {"CONV-1", "000", "L38-41", "short_convolution", "convolve channels: q 4096, k 2048, v 2048", V::erratum,
     [] {
       return Computation()
           .contrast("channels of q", 4096.0, static_cast<double>(kShape.key_dim))
           .contrast("channels of v", 2048.0, static_cast<double>(kShape.value_dim))
           .count("channels of k", kShape.key_dim, 2048)
           .count("total, printed and correct", kShape.convolved, 4096 + 2048 + 2048)
           .erratum();
     }},
    {"ACT-1", "000", "L44", "activations", "the activation is SiLU", V::ok_qualified,
     [] {
       IdentityDraw<double> draw(1);
       const Matrix<double> x = draw.normal(7, 3);
       const Matrix<double> kernel = draw.normal(3, 4);
       const Matrix<double> state = empty_convolution_state<double>(4, 3);
       return Computation()
           .identical("silu of the plain convolution", silu(short_convolution(x, kernel, {}, state, false).y),
                      short_convolution(x, kernel, {}, state).y)
           .count("channels it is applied to: q, k, v", kShape.convolved, 8192)
           .holds();
     }},
    {"GDN-9", "000", "L48-51", "gated_delta_net", "Q_rep = repeat(q, [1, 1, 2, 1]), K_rep likewise",
     V::erratum, head_repeat},
    {"GDN-10", "000", "L57", "gated_delta_rule", "S_0 = 0, [B, 32, 128, 128]", V::ok,
     [] {
       const Sequence<double> none = from_zero_state(drawn_sequence(0, 4, 3));
       return Computation()
           .count("scalars a sequence and layer", costs::state_elements(kModel), 524288)
           .identical("S after no token", recurrent<GatedDeltaRule>(none).state,
                      Matrix<double>::Zero(4, 3).eval())
           .holds();
     }},
    {"GDN-11", "000", "L60", "gates", "beta = sigma(b)", V::ok,
     [] {
       return Computation()
           .equal("sigma(0)", write_strength(row_of({0.0}))(0, 0), 0.5)
           .equal("sigma(ln 3)", write_strength(row_of({std::log(3.0)}))(0, 0), 0.75)
           .holds();
     }},
    {"GDN-12", "000", "L61", "gates", "g = -exp(A_log) softplus(a + dt_bias)", V::ok,
     [] {
       IdentityDraw<double> draw(1);
       const Vector<double> zero = Vector<double>::Zero(1);
       const Matrix<double> g =
           log_decay(draw.normal(9, 4, 5.0), draw.normal_vector(4), draw.normal_vector(4));
       return Computation()
           .rounds_to("A_log = a = dt_bias = 0: g", log_decay(row_of({0.0}), zero, zero)(0, 0), -0.6931, 4)
           .relation("g <= 0 on random inputs", g.maxCoeff() <= 0.0)
           .holds();
     }},
    {"GDN-13", "000", "L63-69", "gated_delta_rule", "for t = 1..L: slices [:, t] of Q, K, V, beta, g",
     V::erratum, loop_bounds},
    {"GDN-14", "000", "L69", "gates", "g_t := exp(g[:, t])", V::ok,
     [] {
       const Vector<double> zero = Vector<double>::Zero(1);
       const double g = log_decay(row_of({0.0}), zero, zero)(0, 0);
       return Computation()
           .equal("exp(-ln 2), the multiplier alpha", std::exp(g), 0.5)
           .relation("0 < exp(g) <= 1 for g = -80 and g = 0", std::exp(-80.0) > 0.0 && std::exp(0.0) == 1.0)
           .holds();
     }},
    {"GDN-15", "000", "L72-73", "gated_delta_rule",
     "expand(g_t, [-1, -1, 128, 128]), expand(beta_t, [-1, -1, 128]) of [B, 32]", V::erratum, expand_axes},
    {"GDN-16", "000", "L76", "gated_delta_rule", "S <- alpha_t S", V::ok,
     [] {
       Sequence<double> x = drawn_sequence(1, 4, 3);
       x.beta.setZero();
       return Computation()
           .agree("state of a token that writes nothing, and alpha S", recurrent<GatedDeltaRule>(x).state,
                  (std::exp(x.g(0)) * x.initial_state).eval())
           .holds();
     }},
    {"GDN-17", "000", "L77-78", "gated_delta_rule", "dS = K_t^T (beta_t V_t); S <- S + dS", V::erratum,
     finding_of_the_write<GatedDeltaRule>},
    {"GDN-18", "000", "L81", "gated_delta_rule", "O_t = Q_t S", V::incomplete, missing_scale},
    {"GDN-19", "000", "L86", "gated_delta_rule", "O = stack over t on axis 1", V::ok, stacked_outputs},
    {"GDN-20", "000", "L46-86", "gated_delta_net", "the layer ends at O", V::incomplete, missing_output},
    {"COST-3", "000", "L90", "costs", "softmax attention costs O(B L^2 d) and keeps a KV cache",
     V::ok_qualified,
     [] {
       const auto flops = [](costs::Count L) { return costs::softmax_attention_flops(L, 16, 256, 256); };
       return Computation()
           .count("operations at twice the length, over those at L = 4096", flops(8192) / flops(4096), 4)
           .count("operations at L = 4096 over 4 L^2 d, d = heads x head width",
                  flops(4096) / costs::product({4, 4096, 4096, 16, 256}), 1)
           .count("cache at twice the length, over that at L",
                  costs::key_value_cache_bytes(costs::attention(kModel), 8192, 1, 2) /
                      costs::key_value_cache_bytes(costs::attention(kModel), 4096, 1, 2),
                  2)
           .holds();
     }},
    {"COST-4", "000", "L91", "costs", "Gated DeltaNet costs O(B L d^2) and keeps S", V::ok_qualified,
     [] {
       const costs::Count token = costs::recurrent_flops_per_token({128, 128});
       const costs::Count d = costs::product({32, 128});
       costs::Count crossover = 1;
       while (costs::softmax_attention_flops(crossover, 1, 128, 128) <
              costs::product({4, crossover, costs::state_elements(costs::RecurrenceConfig{128, 128})})) {
         ++crossover;
       }
       return Computation()
           .count("operations of a token and head", token, costs::product({7, 128, 128}))
           .count("of 32 heads that split d = 4096: 7 d^2 / 32", 32 * token, costs::product({7, d, d}) / 32)
           .count("length at which 4 L^2 d reaches the 4 L d^2 of one write and one read", crossover, 128)
           .holds();
     }},
    {"GATT-1", "000", "L93-94", "gated_attention", "section Gated Attention is empty", V::incomplete,
     attention_gate},
};

}  // namespace

std::span<const Equation> rows() { return kRows; }

}  // namespace samestate::document_000_equations

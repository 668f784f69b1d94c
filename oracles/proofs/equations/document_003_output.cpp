#include "oracles/proofs/equations/computation.h"
#include "oracles/proofs/equations/data.h"
#include "oracles/proofs/equations/dendritic_case.h"
#include "oracles/proofs/equations/groups.h"

/// Document 003, DendAttn: mixing, output, the table of dimensions, the count of parameters.
namespace samestate::document_003_output_equations {
namespace {

using V = LedgerVerdict;
using M = Matrix<double>;

const costs::DendriticConfig& c = kDendritic;
const costs::DendriticShape& s = kDendriticShape;

/// The parameters as the document counts them: with biases in the convolutions and a separate gate for every
/// head.
costs::DendriticConfig counted_by_the_document() {
  costs::DendriticConfig document = c;
  document.convolution_bias = true;
  document.gate_per_head = true;
  return document;
}

double millions(costs::Count count) { return static_cast<double>(count) / 1e6; }

Finding mixed_branches() {
  const SmallDendriticLayer layer;
  const DendriticSizes& sizes = layer.sizes();
  M a = M::Zero(11, 12);
  for (Index h = 0; h < 2; ++h) {
    for (Index e = 0; e < 4; ++e) {
      for (Index n = 0; n < 2; ++n) {
        const M& o = layer.out.o[static_cast<std::size_t>(sizes.virtual_head(n, e, h))];
        for (Index t = 0; t < 11; ++t) {
          for (Index i = 0; i < 6; ++i) {
            a(t, h * 6 + i) += layer.out.routing[static_cast<std::size_t>(h)].weights(t, e) * o(t, i);
          }
        }
      }
    }
  }
  const Extents o = {c.branches, c.batch, c.length, c.heads, s.value_width};
  return Computation()
      .shape("eblhd,eblh->blhd",
             einsum_shape("eblhd,eblh->blhd", {o, {c.branches, c.batch, c.length, c.heads}}),
             {2, 1024, 8, 512})
      .agree("mixed branches of the small layer, and the sum", layer.out.a, a)
      .holds();
}

Finding example_weights() {
  Matrix<Index> selected(1, 2);
  selected << 2, 4;  // branches 3 and 5
  const auto routing = injected_routing<double>(selected, row_of({0.2, 0.2}), {8, 1, 2});
  const M correct = routing.weights;
  M thirds = M::Zero(1, 8);
  M mask = M::Zero(1, 8);
  for (const Index e : {0, 3, 5}) thirds(0, e) = 0.33;
  for (Index e = 0; e < 8; ++e) mask(0, e) = routing.mask(0, e) ? 1.0 / 3.0 : 0.0;
  return Computation()
      .agree("equal logits, branches 0, 3, 5: 0.5, 0.25, 0.25", correct,
             row_of({0.5, 0, 0, 0.25, 0, 0.25, 0, 0}))
      .contrast("weight of the shared branch", thirds(0, 0), correct(0, 0))
      .rounds_to("0.33 is the normalised mask", mask(0, 3), 0.33, 2)
      .contrast("sum of the printed weights", thirds.sum(), correct.sum())
      .identity("dendritic_weight_halves")
      .identity("dendritic_equal_thirds")
      .erratum();
}

Finding output_norm() {
  const SmallDendriticLayer layer;
  const M z = layer.core.z;
  M without(11, 12);
  M with(11, 12);
  for (Index h = 0; h < 2; ++h) {
    const M a = layer.head(layer.out.a, h, 6);
    const M gate = layer.head(z, h, 6);
    without.middleCols(h * 6, 6) = rms_norm_gated<double>(a, gate, Vector<double>::Ones(6), 1e-5);
    with.middleCols(h * 6, 6) = rms_norm_gated(a, gate, layer.p.o_norm, 1e-5);
  }
  return Computation()
      .agree("the layer with its weight", linear(with, layer.p.o_proj), layer.out.output)
      .contrast_all("the printed formula, without it", linear(without, layer.p.o_proj), layer.out.output)
      .count("entries of the weight that COST-19 counts",
             costs::parameters(c).output - 2 * costs::linear_parameters(c.hidden, s.value_channels), 512)
      .identity("dendritic_zero_weights")
      .resolved();
}

Finding returned_logits() {
  const SmallDendriticLayer layer;
  return Computation()
      .contrast("fourth value of the two return lines", "None", "router_logits")
      .shape("router_logits of the document", {c.heads * c.batch, c.length, s.routed_branches}, {16, 1024, 7})
      .count("heads with logits in the small layer", static_cast<std::int64_t>(layer.out.routing.size()), 2)
      .shape("each", {layer.out.routing[0].logits.rows(), layer.out.routing[0].logits.cols()}, {11, 3})
      .remark("resolution: return them, an auxiliary loss needs them")
      .resolved();
}

/// Every row of the table L363-382, each from the one before it.
Finding dimension_table() {
  Computation t;
  const std::int64_t E = c.branches;
  const std::int64_t H = c.heads;
  const Extents x = tokens_of({c.hidden});
  t.shape("input", x, {2, 1024, 2048});
  Extents q = einsum_shape("blc,cd->bld", {x, {c.hidden, s.key_channels}});
  Extents v = einsum_shape("blc,cd->bld", {x, {c.hidden, s.value_channels}});
  t.shape("projection", q, {2, 1024, 2048}).shape("v", v, {2, 1024, 4096});
  q = rearranged("b l (h d) -> h b l d", q, {{"h", H}});
  v = rearranged("b l (h d) -> h b l d", v, {{"h", H}});
  t.shape("heads", q, {8, 2, 1024, 256}).shape("v", v, {8, 2, 1024, 512});
  const Extents scores = rearranged("h b l d -> (h b) l d", {H, c.batch, c.length, E});
  t.shape("router weight", rearranged("(h b) l n -> n b l h", scores, {{"h", H}}), {8, 2, 1024, 8});
  q = einsum_shape("hblc,hcd->hbld", {q, {H, c.head_width, E * c.head_width}});
  t.shape("expansion", q, {8, 2, 1024, 2048});
  q = rearranged("h b l (e d) -> e h b l d", q, {{"e", E}});
  v = rearranged("h b l d -> e h b l d", v, {{"e", E}});
  t.shape("branches", q, {8, 8, 2, 1024, 256}).shape("v", v, {8, 8, 2, 1024, 512});
  q = rearranged("e h b l d -> (e b) l (h d)", q);
  v = rearranged("e h b l d -> (e b) l (h d)", v);
  t.shape("merged, and convolved", q, {16, 1024, 2048}).shape("v", v, {16, 1024, 4096});
  q = rearranged("(e b) l (h d) -> e b l h d", q, {{"e", E}, {"h", H}});
  v = rearranged("(e b) l (h d) -> e b l h d", v, {{"e", E}, {"h", H}});
  t.shape("split and masked", q, {8, 2, 1024, 8, 256}).shape("v", v, {8, 2, 1024, 8, 512});
  q = rearranged("e b l h d -> b l (e h) d", q);
  v = rearranged("e b l h d -> b l (e h) d", v);
  t.shape("merged heads", q, {2, 1024, 64, 256}).shape("v", v, {2, 1024, 64, 512});
  t.shape("g, beta", rearranged("e b l h -> b l (e h)", {E, c.batch, c.length, H}), {2, 1024, 64});
  q = {q[0], q[1], q[2] * c.windows, s.window_width};
  v = rearranged("b l h d -> b l (k h) d", v, {{"k", c.windows}});
  t.shape("windows", q, {2, 1024, 128, 160}).shape("v", v, {2, 1024, 128, 512});
  t.shape("rule", v, {2, 1024, 128, 512});
  v = einsum_shape("blhkd->blhd", {rearranged("b l (k h) d -> b l h k d", v, {{"k", c.windows}})});
  t.shape("windows summed", v, {2, 1024, 64, 512});
  v = einsum_shape("eblhd->blhd", {rearranged("b l (e h) d -> e b l h d", v, {{"e", E}})});
  t.shape("branches mixed, and gated", v, {2, 1024, 8, 512});
  v = einsum_shape("blc,cd->bld", {rearranged("b l h d -> b l (h d)", v), {s.value_channels, c.hidden}});
  return t.shape("output", v, {2, 1024, 2048}).holds();
}

Finding layer_total() {
  costs::DendriticConfig shared_gate = counted_by_the_document();
  shared_gate.gate_per_head = false;
  costs::DendriticConfig no_bias = counted_by_the_document();
  no_bias.convolution_bias = false;
  costs::Count of_the_reference = 0;
  for (const DendriticWeightShape& w : dendritic_weight_shapes(document_sizes())) {
    of_the_reference += w.rows * w.columns * w.copies;
  }
  return Computation()
      .count("its own addends", costs::parameters(counted_by_the_document()).total(), 42261120)
      .rounds_to("in millions", millions(costs::parameters(counted_by_the_document()).total()), 42.26, 2)
      .count("without the convolutions' biases", costs::parameters(no_bias).total(), 42252928)
      .count("with a shared gate", costs::parameters(shared_gate).total(), 42248576)
      .count("with both", costs::parameters(c).total(), 42240384)
      .count("the weights of the reference layer", of_the_reference, 42240384)
      .holds();
}

const Equation kRows[] = {
    {"DEND-40", "003", "L280-281", "dendritic_attention", "'b l (e h) d -> e b l h d'", V::ok,
     [] {
       return Computation()
           .shape("o",
                  rearranged("b l (e h) d -> e b l h d", tokens_of({s.gates, s.value_width}),
                             {{"e", c.branches}}),
                  {8, 2, 1024, 8, 512})
           .holds();
     }},
    {"DEND-41", "003", "L283-291", "dendritic_attention",
     "o_final = sum_e router_weight[e] o[e]; einsum eblhd,eblh->blhd", V::ok, mixed_branches},
    {"DEND-42", "003", "L293-298", "dendritic_router", "example weights 0.33 (shared), 0.33, 0.33; sum = 1.0",
     V::erratum, example_weights},
    {"DEND-43", "003", "L302", "dendritic_attention", "output o [2, 1024, 8, 512]", V::ok,
     [] {
       return Computation()
           .shape("o",
                  einsum_shape("eblhd,eblh->blhd", {{c.branches, c.batch, c.length, c.heads, s.value_width},
                                                    {c.branches, c.batch, c.length, c.heads}}),
                  {2, 1024, 8, 512})
           .holds();
     }},
    {"DEND-44", "003", "L312-319", "dendritic_attention",
     "g_out = g_proj(x), 2048 -> 4096, '(h d) -> h d', h = 8", V::ok,
     [] {
       const SmallDendriticLayer layer;
       return Computation()
           .shape("g", rearranged("b l (h d) -> b l h d", tokens_of({s.value_channels}), {{"h", c.heads}}),
                  {2, 1024, 8, 512})
           .rounds_to("weights in millions", millions(costs::linear_parameters(c.hidden, s.value_channels)),
                      8.39, 2)
           .agree("the gate of the small layer, of its input", layer.core.z, linear(layer.x, layer.p.g_proj))
           .holds();
     }},
    {"DEND-45", "003", "L322-334", "norms",
     "o / sqrt(mean(o^2) + eps) swish(g), eps = 1e-5, head_v_dim = 512", V::inconsistent, output_norm},
    {"DEND-46", "003", "L337-345", "dendritic_attention", "'(h d)' merge, o_proj 4096 -> 2048", V::ok,
     [] {
       return Computation()
           .shape("b l h d -> b l (h d)",
                  rearranged("b l h d -> b l (h d)", tokens_of({c.heads, s.value_width})), {2, 1024, 4096})
           .rounds_to("weights in millions, no bias",
                      millions(costs::linear_parameters(s.value_channels, c.hidden)), 8.39, 2)
           .holds();
     }},
    {"DEND-47", "003", "L353", "dendritic_attention", "output [2, 1024, 2048]", V::ok,
     [] {
       return Computation()
           .shape("output",
                  einsum_shape("blc,cd->bld", {tokens_of({s.value_channels}), {s.value_channels, c.hidden}}),
                  {2, 1024, 2048})
           .holds();
     }},
    {"COST-13", "003", "L354", "costs", "output 8.4 MB (FP16)", V::ok,
     [] {
       return Computation()
           .rounds_to("MB", costs::megabytes(costs::product({2, c.batch, c.length, c.hidden})), 8.4, 1)
           .holds();
     }},
    {"DEND-48", "003", "L356-357", "dendritic_attention",
     "returns (output, None, past_key_values, router_logits); return o, None, past_key_values, None",
     V::inconsistent, returned_logits},
    {"DEND-49", "003", "L363-382", "dendritic_attention", "dimension table, 17 rows", V::ok, dimension_table},
    {"COST-14", "003", "L395-400", "costs", "4,194,304 + 4,194,304 + 8,388,608 = 16,777,216", V::ok,
     [] { return Computation().count("projections", costs::parameters(c).projections, 16777216).holds(); }},
    {"COST-15", "003", "L405-409", "costs", "4,194,304 + 4,194,304 = 8,388,608", V::ok,
     [] { return Computation().count("expansions", costs::parameters(c).expansions, 8388608).holds(); }},
    {"COST-16", "003", "L415-417", "costs", "gate [256, 7] x 8 heads (shared) = 14,336", V::inconsistent,
     [] {
       return Computation()
           .count("one gate a head", costs::parameters(counted_by_the_document()).router, 14336)
           .count("one gate for all heads", costs::parameters(c).router, 1792)
           .contrast("weights of a shared gate", 14336.0, static_cast<double>(costs::parameters(c).router))
           .remark("resolution: shared, as upstream")
           .resolved();
     }},
    {"COST-17", "003", "L422-428", "costs", "131,072 x 2 + 64 x 2 = 262,272", V::ok,
     [] { return Computation().count("gates", costs::parameters(c).gates, 262272).holds(); }},
    {"COST-18", "003", "L434-438", "costs", "convolutions with bias: 10,240 + 10,240 + 20,480 = 40,960",
     V::erratum,
     [] {
       return Computation()
           .count("with biases", costs::parameters(counted_by_the_document()).convolutions, 40960)
           .count("without", costs::parameters(c).convolutions, 32768)
           .contrast("parameters of the convolutions", 40960.0,
                     static_cast<double>(costs::parameters(c).convolutions))
           .erratum();
     }},
    {"COST-19", "003", "L443-448", "costs", "8,388,608 x 2 + 512 = 16,777,728", V::ok,
     [] { return Computation().count("output", costs::parameters(c).output, 16777728).holds(); }},
    {"COST-20", "003", "L452", "costs", "total about 42.26M a layer", V::ok_qualified, layer_total},
    {"COST-21", "003", "L455-456", "costs",
     "x 24 = 1.01B for a 24-layer model, without embeddings and LM head", V::incomplete,
     [] {
       const auto billions = [](const costs::DendriticConfig& config) {
         return 24e-9 * static_cast<double>(costs::parameters(config).total());
       };
       return Computation()
           .rounds_to("24 layers in billions", billions(counted_by_the_document()), 1.01427, 5)
           .rounds_to("corrected", billions(c), 1.01377, 5)
           .rounds_to("as printed", billions(c), 1.01, 2)
           .remark("without the feed-forward blocks and layer norms too")
           .resolved();
     }},
};

}  // namespace

std::span<const Equation> rows() { return kRows; }

}  // namespace samestate::document_003_output_equations

#include "oracles/proofs/equations/computation.h"
#include "oracles/proofs/equations/data.h"
#include "oracles/proofs/equations/dendritic_case.h"
#include "oracles/proofs/equations/groups.h"
#include "oracles/proofs/equations/planted.h"

/// Document 003, DendAttn: projections, router, expansion, convolution, masks.
namespace samestate::document_003_input_equations {
namespace {

using V = LedgerVerdict;
using M = Matrix<double>;

const costs::DendriticConfig& c = kDendritic;
const costs::DendriticShape& s = kDendriticShape;

double millions(costs::Count count) { return static_cast<double>(count) / 1e6; }

/// The weights of shared and routed branches, shared first, for chosen branches of these probabilities.
M branch_weights(const std::vector<double>& chosen, Index shared, bool literal) {
  const auto K = static_cast<Index>(chosen.size());
  Matrix<Index> selected(1, K);
  for (Index i = 0; i < K; ++i) selected(0, i) = i;
  const WeightRule rule = literal ? WeightRule::literal : WeightRule::renormalise_routed;
  return injected_routing<double>(selected, row_of(chosen), {shared + K, shared, K}, rule).weights;
}

Finding sibling_sources() {
  return Computation()
      .count("lines of forward(), L295-478, and L276-459 here", 478 - 295 + 1, 459 - 276 + 1)
      .count("lines of re_process(), L36-73", 73 - 36 + 1, 38)
      .contrast("sparse() of the sibling that is called dense", "none", "L243-292, 50 lines")
      .identity("dendritic_all_chosen")
      .remark("resolution: both select top-k; dense would be K = E - Es")
      .resolved();
}

Finding router_input() {
  const SmallDendriticLayer layer;
  const M q = linear(layer.x, layer.p.q_proj);
  Computation computation;
  computation.shape("h b l d -> (h b) l d",
                    rearranged("h b l d -> (h b) l d", {c.heads, c.batch, c.length, c.head_width}),
                    {16, 1024, 256});
  for (Index h = 0; h < 2; ++h) {
    computation.agree("logits of head " + std::to_string(h) + ", from q as projected",
                      layer.out.routing[static_cast<std::size_t>(h)].logits,
                      linear(layer.head(q, h, 8), layer.p.router));
  }
  return computation.holds();
}

Finding router_scores() {
  const SmallDendriticLayer layer;
  const auto& routing = layer.out.routing[0];
  return Computation()
      .count("routed branches", s.routed_branches, 7)
      .agree("probabilities, softmax of the logits", routing.probabilities, softmax(routing.logits))
      .agree("their sums", routing.probabilities.rowwise().sum().eval(), Vector<double>::Ones(11).eval())
      .holds();
}

Finding router_selection() {
  const SmallDendriticLayer layer;
  const auto& routing = layer.out.routing[0];
  bool shifted = true;
  M chosen(11, 2);
  for (Index t = 0; t < 11; ++t) {
    for (Index i = 0; i < 2; ++i) {
      shifted = shifted && routing.mask(t, 1 + routing.selected(t, i));
      chosen(t, i) = routing.probabilities(t, routing.selected(t, i));
    }
  }
  return Computation()
      .relation("the branch of candidate i is Es + i", shifted)
      .identity("dendritic_unshifted_index")
      .contrast_all("top-k probabilities as they are, and renormalised to 1", chosen,
                    (chosen.rowwise().sum().cwiseInverse().asDiagonal() * chosen).eval())
      .remark("missing in the text: the shift by Es, and the renormalisation")
      .resolved();
}

Finding router_mask() {
  const SmallDendriticLayer layer;
  bool same = true;
  for (const auto& routing : layer.out.routing) {
    for (Index t = 0; t < 11; ++t) {
      for (Index e = 0; e < 4; ++e) same = same && routing.mask(t, e) == (routing.weights(t, e) != 0.0);
    }
  }
  return Computation()
      .shape("(h b) l n -> n b l h",
             rearranged("(h b) l n -> n b l h", {16, c.length, c.branches}, {{"h", c.heads}}),
             {8, 2, 1024, 8})
      .relation("mask = (weight != 0), where no weight underflows", same)
      .holds();
}

Finding branch_channels() {
  const Rearrangement branches("h b l (e d) -> e h b l d", {2, 1, 1, 6}, {{"e", 3}});
  Extents expected;
  for (std::int64_t e = 0; e < 3; ++e) {
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t channel = 0; channel < 2; ++channel) expected.push_back(h * 6 + e * 2 + channel);
    }
  }
  return Computation()
      .shape("h b l (e d) -> e h b l d",
             rearranged("h b l (e d) -> e h b l d", {c.heads, c.batch, c.length, 2048}, {{"e", c.branches}}),
             {8, 8, 2, 1024, 256})
      .shape("sources at e = 3, h = 2, d = 2: channel e d + c", branches.sources(), expected)
      .holds();
}

Finding convolution_of_branches() {
  const SmallDendriticLayer layer;
  const M q = linear(layer.x, layer.p.q_proj);
  M expanded(11, 16);  // branch 2 of both heads
  for (Index h = 0; h < 2; ++h) {
    const M all = linear(layer.head(q, h, 8), layer.p.q_expansion[static_cast<std::size_t>(h)]);
    expanded.middleCols(h * 8, 8) = all.middleCols(16, 8);
  }
  const Convolved<double> y =
      short_convolution(expanded, layer.p.q_conv, {}, empty_convolution_state<double>(4, 16));
  return Computation()
      .agree("the layer keeps the last 3 UNMASKED inputs of branch 2", layer.out.cache.conv_q[2], y.state)
      .identity("dendritic_mask_before_convolution")
      .count("kernel weights, shared by all branches", costs::parameters(c).convolutions, 32768)
      .holds();
}

Finding masked_branches() {
  const SmallDendriticLayer layer;
  const DendriticSizes& sizes = layer.sizes();
  int masked = 0;
  bool zero = true;
  for (Index h = 0; h < sizes.heads; ++h) {
    for (Index e = 0; e < sizes.branches(); ++e) {
      const Sequence<double>& head = layer.core.heads[static_cast<std::size_t>(sizes.virtual_head(1, e, h))];
      for (Index t = 0; t < 11; ++t) {
        if (layer.out.routing[static_cast<std::size_t>(h)].mask(t, e)) continue;
        ++masked;
        zero = zero && head.q.row(t).isZero(0) && head.k.row(t).isZero(0) && head.v.row(t).isZero(0);
      }
    }
  }
  return Computation()
      .count("(token, head, branch) that are masked, of 88", masked, 22)
      .relation("their q, k and v are exactly 0", zero)
      .holds();
}

Finding active_branches() {
  const SmallDendriticLayer layer;
  bool three = true;
  Index widest = 0;
  for (Index t = 0; t < 11; ++t) {
    Index in_union = 0;
    for (Index e = 0; e < 4; ++e) {
      in_union += layer.out.routing[0].mask(t, e) || layer.out.routing[1].mask(t, e) ? 1 : 0;
    }
    widest = std::max(widest, in_union);
    for (const auto& routing : layer.out.routing) three = three && routing.mask.row(t).count() == 3;
  }
  return Computation()
      .relation("Es + K = 3 branches for every (token, head)", three)
      .identity("dendritic_active_branches")
      .contrast("most branches of one token over its 2 heads", 3.0, static_cast<double>(widest))
      .remark("resolution: per (token, head)")
      .resolved();
}

const Equation kRows[] = {
    {"DEND-1", "003", "L3", "dendritic_attention",
     "B=2, L=1024, D=2048, H=8, d=256, E=8, Es=1, K=2, N=2, O=64", V::ok,
     [] {
       return Computation()
           .count("H d", s.key_channels, c.hidden)
           .relation("E >= Es + K", c.branches >= c.shared + c.routed)
           .count("dv at expand_v 2", s.value_width, 512)
           .holds();
     }},
    {"DEND-2", "003", "L5,16-17,685-709", "dendritic_attention",
     "line map of layer.py; the sibling mob_gated_deltanet activates densely", V::inconsistent,
     sibling_sources},
    {"DEND-3", "003", "L22-23", "dendritic_attention", "input hidden_states [2, 1024, 2048]", V::ok,
     [] {
       return Computation()
           .shape("hidden_states", tokens_of({c.hidden}), {2, 1024, 2048})
           .count("elements", costs::product({c.batch, c.length, c.hidden}), 4194304)
           .holds();
     }},
    {"COST-8", "003", "L24", "costs", "input 8.4 MB (FP16)", V::ok,
     [] {
       return Computation()
           .rounds_to("MB", costs::megabytes(costs::product({2, c.batch, c.length, c.hidden})), 8.4, 1)
           .holds();
     }},
    {"DEND-4", "003", "L30-40", "dendritic_attention",
     "q, k, v = x W_q, x W_k, x W_v; W [2048, 2048] x 2, [2048, 4096]", V::ok,
     [] {
       return Computation()
           .shape("q, k", einsum_shape("blc,cd->bld", {tokens_of({c.hidden}), {c.hidden, s.key_channels}}),
                  {2, 1024, 2048})
           .shape("v", einsum_shape("blc,cd->bld", {tokens_of({c.hidden}), {c.hidden, s.value_channels}}),
                  {2, 1024, 4096})
           .holds();
     }},
    {"COST-9", "003", "L35", "costs", "parameters 4.19M, 4.19M, 8.39M", V::ok,
     [] {
       return Computation()
           .rounds_to("W_q, W_k in millions", millions(costs::linear_parameters(c.hidden, s.key_channels)),
                      4.19, 2)
           .rounds_to("W_v", millions(costs::linear_parameters(c.hidden, s.value_channels)), 8.39, 2)
           .holds();
     }},
    {"DEND-5", "003", "L44-50", "dendritic_attention", "'b t (h d) -> h b t d'", V::ok,
     [] {
       return Computation()
           .shape("q, k", rearranged("b t (h d) -> h b t d", tokens_of({s.key_channels}), {{"h", c.heads}}),
                  {8, 2, 1024, 256})
           .shape("v", rearranged("b t (h d) -> h b t d", tokens_of({s.value_channels}), {{"h", c.heads}}),
                  {8, 2, 1024, 512})
           .holds();
     }},
    {"DEND-6", "003", "L59-61", "dendritic_router", "router input is q after q_proj; 'h b l d -> (h b) l d'",
     V::ok, router_input},
    {"DEND-7", "003", "L63-69", "dendritic_router", "gate Linear(256 -> 7), 7 = E - Es", V::ok,
     [] {
       const SmallDendriticLayer layer;
       return Computation()
           .shape("router_logits",
                  einsum_shape("nlc,cd->nld", {{c.heads * c.batch, c.length, c.head_width},
                                               {c.head_width, s.routed_branches}}),
                  {16, 1024, 7})
           .shape("router of the small layer, one for all heads",
                  {layer.p.router.rows(), layer.p.router.cols()}, {4 - 1, 8})
           .holds();
     }},
    {"DEND-8", "003", "L70-71", "dendritic_router", "scores = softmax(logits) over the 7 routed branches",
     V::ok, router_scores},
    {"DEND-9", "003", "L72-74", "dendritic_router", "topk(2) -> routing_weights, selected_idx", V::incomplete,
     router_selection},
    {"DEND-10", "003", "L76-81", "dendritic_router",
     "full weights: idx[0:1] = 1.0 shared, scatter top-k, normalise to sum 1", V::ambiguous,
     [] { return finding_of_the_branch_weights(branch_weights); }},
    {"DEND-11", "003", "L82-84", "dendritic_router", "'(h b) l n -> n b l h'; mask = (weight != 0) as int",
     V::ok, router_mask},
    {"DEND-12", "003", "L60-69", "dendritic_attention",
     "per head: q[i] Q_i, k likewise; Linear(256 -> 2048) x 8 heads", V::ok,
     [] {
       const SmallDendriticLayer layer;
       return Computation()
           .shape("q, k",
                  einsum_shape("hblc,hcd->hbld", {{c.heads, c.batch, c.length, c.head_width},
                                                  {c.heads, c.head_width, c.branches * c.head_width}}),
                  {8, 2, 1024, 2048})
           .count("matrices Q_h of the small layer, one a head",
                  static_cast<std::int64_t>(layer.p.q_expansion.size()), 2)
           .identity("dendritic_plain_loops")
           .holds();
     }},
    {"COST-10", "003", "L64,68", "costs", "expansions 4.19M each", V::ok,
     [] {
       return Computation()
           .count("8 x 256 x 2048, of q", costs::parameters(c).expansions / 2, 4194304)
           .rounds_to("in millions", millions(costs::parameters(c).expansions / 2), 4.19, 2)
           .holds();
     }},
    {"DEND-13", "003", "L71-75", "dendritic_attention", "[8, 2, 1024, 256] -> [8, 2, 1024, 2048]", V::ok,
     [] {
       return Computation()
           .shape("from", rearranged("b l (h d) -> h b l d", tokens_of({s.key_channels}), {{"h", c.heads}}),
                  {8, 2, 1024, 256})
           .count("channels of the result, E d", costs::product({c.branches, c.head_width}), 2048)
           .holds();
     }},
    {"DEND-14", "003", "L77-83", "dendritic_attention", "'h b l (e d) -> e h b l d'", V::ok, branch_channels},
    {"DEND-15", "003", "L84", "dendritic_attention", "v repeated over e", V::ok,
     [] {
       return Computation()
           .shape("h b l d -> e h b l d",
                  rearranged("h b l d -> e h b l d", {c.heads, c.batch, c.length, s.value_width},
                             {{"e", c.branches}}),
                  {8, 8, 2, 1024, 512})
           .identity("dendritic_shared_values")
           .holds();
     }},
    {"DEND-16", "003", "L95-99", "dendritic_attention", "merge '(e b) l (h d)'", V::ok,
     [] {
       return Computation()
           .shape("q, k",
                  rearranged("e h b l d -> (e b) l (h d)",
                             {c.branches, c.heads, c.batch, c.length, c.head_width}),
                  {16, 1024, 2048})
           .shape("v",
                  rearranged("e h b l d -> (e b) l (h d)",
                             {c.branches, c.heads, c.batch, c.length, s.value_width}),
                  {16, 1024, 4096})
           .holds();
     }},
    {"DEND-17", "003", "L104-113", "short_convolution",
     "depthwise short conv of width 4 + SiLU on q, k, v; weights shared by all branches", V::ok,
     convolution_of_branches},
    {"DEND-18", "003", "L118-123", "dendritic_attention", "'(e b) l (h d) -> e b l h d'", V::ok,
     [] {
       const std::map<std::string, std::int64_t> sizes = {{"e", c.branches}, {"h", c.heads}};
       return Computation()
           .shape("q, k", rearranged("(e b) l (h d) -> e b l h d", {16, c.length, s.key_channels}, sizes),
                  {8, 2, 1024, 8, 256})
           .shape("v", rearranged("(e b) l (h d) -> e b l h d", {16, c.length, s.value_channels}, sizes),
                  {8, 2, 1024, 8, 512})
           .holds();
     }},
    {"DEND-19", "003", "L126-131", "dendritic_attention",
     "q, k, v <- q, k, v * router_mask[..., None], after the conv", V::ok, masked_branches},
    {"DEND-20", "003", "L132", "dendritic_router", "only 3 branches active per token", V::inconsistent,
     active_branches},
};

}  // namespace

std::span<const Equation> rows() { return kRows; }

}  // namespace samestate::document_003_input_equations

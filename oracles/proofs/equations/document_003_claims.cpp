#include <cmath>

#include "oracles/proofs/equations/computation.h"
#include "oracles/proofs/equations/data.h"
#include "oracles/proofs/equations/dendritic_case.h"
#include "oracles/proofs/equations/groups.h"
#include "reference/retention.h"
#include "reference/softmax_attention.h"

/// Document 003, DendAttn: sparsity, connectivity, the comparison with a Transformer, the biological mapping.
namespace samestate::document_003_claim_equations {
namespace {

using V = LedgerVerdict;
using M = Matrix<double>;

const costs::DendriticConfig& c = kDendritic;
const costs::DendriticShape& s = kDendriticShape;
constexpr costs::Count kKilo = 1024;

double megaflops(costs::Count count) { return static_cast<double>(count) / 1e6; }

/// The key-value cache that an attention layer of this width holds after L tokens, 16 bit.
double cache_megabytes(costs::Count length) {
  return costs::megabytes(costs::product({2, length, costs::transformer_cache_per_token(c)}));
}
double state_megabytes(costs::Count element_bytes) {
  return costs::megabytes(costs::product({element_bytes, costs::state_elements(c)}));
}
double saving(double state, double cache) { return 100.0 * (1.0 - state / cache); }

/// One row of the table L607-611: what the document prints, and the same from the cost model. Numbers in MB
/// and %.
struct ReductionClaim {
  costs::Count length;
  double cache;      ///< as printed
  double reduction;  ///< as printed, its sign from the words worse and better
  int decimals;
  double in_16_bit;  ///< reduction that the ledger gives instead
  double in_fp32;
  int corrected_decimals;
};

Computation reduction(const ReductionClaim& claim) {
  const double cache = cache_megabytes(claim.length);
  return Computation()
      .rounds_to("arithmetic of the row, %", saving(26.2, claim.cache), claim.reduction, claim.decimals)
      .equal("cache in MB, 16.777216 L / 1024", cache, 16.777216 * static_cast<double>(claim.length / kKilo))
      .contrast("state in MB, 16 bit", 26.2, state_megabytes(2))
      .rounds_to("reduction, 16 bit, %", saving(state_megabytes(2), cache), claim.in_16_bit,
                 claim.corrected_decimals)
      .rounds_to("reduction, fp32, %", saving(state_megabytes(4), cache), claim.in_fp32,
                 claim.corrected_decimals)
      .contrast("reduction, %", saving(26.2, claim.cache), saving(state_megabytes(2), cache));
}

Finding break_even() {
  const costs::Count token = 2 * costs::transformer_cache_per_token(c);
  const costs::Count elements = costs::state_elements(c);
  return reduction({512 * kKilo, 8600, 99.7, 1, 99.5, 99.0, 1})
      .count("break-even length of 26.2144 MB", costs::break_even_length(26214400, token), 1600)
      .count("in 16 bit", costs::break_even_length(2 * elements, token), 2560)
      .count("in fp32", costs::break_even_length(4 * elements, token), 5120)
      .erratum();
}

Finding used_branches() {
  Matrix<Index> selected(3, 2);
  selected << 2, 4, 1, 6, 0, 3;
  const auto routing =
      injected_routing<double>(selected, M::Constant(3, 2, 0.5), {c.branches, c.shared, c.routed});
  Computation computation;
  const std::vector<Extents> printed = {{0, 3, 5}, {0, 2, 7}, {0, 1, 4}};
  for (Index t = 0; t < 3; ++t) {
    Extents used;
    for (Index e = 0; e < 8; ++e) {
      if (routing.mask(t, e)) used.push_back(e);
    }
    computation.shape("branches of token " + std::to_string(t), used, printed[static_cast<std::size_t>(t)]);
  }
  return computation.holds();
}

Finding saved_operations() {
  const costs::DendriticFlops f = costs::flops_per_token(c);
  const double total = megaflops(f.total());
  const double saved = megaflops(costs::compaction_saving(c));
  return Computation()
      .rounds_to("projections, MFLOP a token", megaflops(f.projections), 84.44, 2)
      .rounds_to("convolutions", megaflops(f.convolutions), 0.52, 2)
      .rounds_to("recurrence, 7 w dv 128", megaflops(f.recurrence), 73.40, 2)
      .rounds_to("total", total, 158.36, 2)
      .rounds_to("saved where inactive tokens are compacted away", saved, 45.88, 2)
      .rounds_to("of the total, %", 100.0 * saved / total, 29.0, 1)
      .contrast("reduction, %", 62.5, 100.0 * saved / total)
      .remark("the masked kernel saves nothing")
      .erratum();
}

Finding states_of_inactive_branches() {
  const SmallDendriticLayer layer;
  costs::DendriticConfig none = c;
  none.routed = 0;
  const double active = static_cast<double>(costs::state_elements(c)) * 3.0 / 8.0;
  return Computation()
      .count("state elements, all branches", costs::state_elements(c), 20971520)
      .count("with no routed branch active", costs::state_elements(none), costs::state_elements(c))
      .contrast("state elements", active, static_cast<double>(costs::state_elements(c)))
      .count("states that the small layer carries, N E H",
             static_cast<std::int64_t>(layer.out.cache.state.size()), 16)
      .erratum();
}

Finding separate_windows() {
  const SmallDendriticLayer layer;
  const DendriticSizes& sizes = layer.sizes();
  const M& first = layer.out.cache.state[static_cast<std::size_t>(sizes.virtual_head(0, 0, 0))];
  const M& second = layer.out.cache.state[static_cast<std::size_t>(sizes.virtual_head(1, 0, 0))];
  return Computation()
      .shape("state of a window, [w, dv]", {s.window_width, s.value_width}, {160, 512})
      .agree("window 0 run alone", recurrent<GatedDeltaRule>(layer.core.heads[0]).state, first)
      .contrast_all("states of windows 0 and 1", first, second)
      .holds();
}

Finding propagation() {
  const OverlapWindows windows = overlap_windows(8, 2, 2);
  IdentityDraw<double> draw(1);
  const M k = draw.normal(5, 8);
  M other = k;
  other.rightCols(3).setZero();  // channels that window 0 [0, 5) does not hold
  Sequence<double> x = drawn_sequence(5, 5, 3);
  x.k = l2norm(windows.slice(k, 0));
  Sequence<double> y = x;
  y.k = l2norm(windows.slice(other, 0));
  return Computation()
      .identical("state of window 0 when channels outside it change", recurrent<GatedDeltaRule>(y).state,
                 recurrent<GatedDeltaRule>(x).state)
      .count("channels that both windows read", c.overlap, s.window_width - s.window_step)
      .untestable(
          "propagation over the whole dimension is no quantity; what holds: windows never exchange state, "
          "they "
          "share input channels and their outputs are summed");
}

Finding softmax_form() {
  IdentityDraw<double> draw(1);
  AttentionInputs<double> x;
  x.q = draw.normal(5, 4);
  x.k = draw.normal(5, 4);
  x.v = draw.normal(5, 3);
  x.scale = 0.5;
  const M p = attention_probabilities(x, 0);
  M expected = M::Zero(5, 5);
  for (Index t = 0; t < 5; ++t) {
    double sum = 0.0;
    for (Index j = 0; j <= t; ++j) sum += std::exp(x.q.row(t).dot(x.k.row(j)) / 2.0);
    for (Index j = 0; j <= t; ++j) expected(t, j) = std::exp(x.q.row(t).dot(x.k.row(j)) / 2.0) / sum;
  }
  return Computation()
      .agree("A of 5 causal tokens, d = 4", p, expected)
      .agree("rows sum to 1", p.rowwise().sum().eval(), Vector<double>::Ones(5).eval())
      .shape("A of the document", {c.batch, c.heads, c.length, c.length}, {2, 8, 1024, 1024})
      .identity("attention_convex")
      .identity("attention_not_causal")
      .holds();
}

Finding third_variant() {
  // g = -0.5 and beta = 1/2: k = v = 1 twice.
  const Sequence<double> x = scalar_sequence({1, 1}, {1, 1}, {0.5, 0.5}, {-0.5, -0.5});
  double printed = 0.0;
  for (int t = 0; t < 2; ++t) printed = -0.5 * printed + 1.0;
  const double alpha = std::exp(-0.5);
  const double once = 0.5;
  const double correct = alpha * once + 0.5 * (1.0 - alpha * once);
  return Computation()
      .equal("S_2 at g = -1/2, beta = 1/2, k = v = 1", recurrent<GatedDeltaRule>(x).state(0, 0), correct)
      .contrast("S_2", printed, correct)
      .contrast("with exp(g) but without beta and delta term", recurrent<Retention>(x).state(0, 0), correct)
      .erratum();
}

Finding cache_claims() {
  return Computation()
      .rounds_to("MB of K and V of 1024 tokens, B = 2", cache_megabytes(kKilo), 16.777, 3)
      .rounds_to("at 64k", cache_megabytes(64 * kKilo), 1073.7, 1)
      .rounds_to("at 512k", cache_megabytes(512 * kKilo), 8589.9, 1)
      .contrast("MB at 64k", 1075.0, cache_megabytes(64 * kKilo))
      .contrast("MB at 512k", 8600.0, cache_megabytes(512 * kKilo))
      .contrast("MB of the state, 16 bit", 26.2, state_megabytes(2))
      .rounds_to("MB of the convolution state, 16 bit, that is left out",
                 costs::megabytes(2 * costs::convolution_cache_elements(c, 4)), 1.05, 2)
      .count("attention matrix at twice the length, over that at L, where a cache gives 2",
             costs::attention_matrix_elements(2, 8, 2048) / costs::attention_matrix_elements(2, 8, 1024), 4)
      .erratum();
}

const Equation kRows[] = {
    {"DEND-50", "003", "L470", "dendritic_router", "ratio 8, shared_head 1, topk 2", V::ok,
     [] {
       return Computation()
           .count("E", c.branches, 8)
           .count("Es", c.shared, 1)
           .count("K", c.routed, 2)
           .holds();
     }},
    {"DEND-51", "003", "L472-490", "dendritic_router", "tokens 0, 1, 2 use {0,3,5}, {0,2,7}, {0,1,4}", V::ok,
     used_branches},
    {"DEND-52", "003", "L495", "dendritic_router", "active branches per token 3 = 1 + 2", V::ok_qualified,
     [] {
       return Computation()
           .count("Es + K", c.shared + c.routed, 3)
           .identity("dendritic_active_branches")
           .remark("for every (token, head)")
           .holds();
     }},
    {"COST-22", "003", "L496", "costs", "activation ratio 3/8 = 37.5 %", V::ok,
     [] {
       return Computation()
           .equal("per cent",
                  100.0 * static_cast<double>(c.shared + c.routed) / static_cast<double>(c.branches), 37.5)
           .holds();
     }},
    {"COST-23", "003", "L497", "costs", "computation reduction 62.5 %", V::erratum, saved_operations},
    {"COST-24", "003", "L498", "costs", "memory reduction: state only computed for active branches",
     V::erratum, states_of_inactive_branches},
    {"COST-25", "003", "L501-503", "costs",
     "2 x 1024 x 8 x 8 = 131,072; 2 x 1024 x 8 x 3 = 49,152; sparsity 62.5 %", V::ok,
     [] {
       const costs::Count most = costs::product({c.batch, c.length, c.heads, c.branches});
       const costs::Count actual = costs::product({c.batch, c.length, c.heads, c.shared + c.routed});
       return Computation()
           .count("B L H E", most, 131072)
           .count("B L H (Es + K)", actual, 49152)
           .equal("sparsity, %", 100.0 * static_cast<double>(most - actual) / static_cast<double>(most), 62.5)
           .holds();
     }},
    {"DEND-53", "003", "L540-541", "overlap_windows", "local dense connectivity within a block",
     V::ok_qualified, separate_windows},
    {"DEND-54", "003", "L542-543", "overlap_windows",
     "overlap gives global sparse connectivity and propagation over the whole dimension", V::untestable,
     propagation},
    {"DEND-55", "003", "L575", "softmax_attention", "A = softmax(Q K^T / sqrt(d)), [B, H, L, L]", V::ok,
     softmax_form},
    {"DEND-56", "003", "L575", "gated_delta_rule", "S_t = g S_{t-1} + K^T V", V::erratum, third_variant},
    {"COST-26", "003", "L577-579", "costs", "attention matrix [2, 8, 1024, 1024] = 16.8 MB", V::erratum,
     [] {
       const costs::Count elements = costs::attention_matrix_elements(c.batch, c.heads, c.length);
       return Computation()
           .count("elements", elements, 16777216)
           .rounds_to("elements in millions", megaflops(elements), 16.8, 1)
           .rounds_to("MB in FP16", costs::megabytes(2 * elements), 33.55, 2)
           .rounds_to("MB in fp32", costs::megabytes(4 * elements), 67.1, 1)
           .contrast("MB in FP16", 16.8, costs::megabytes(2 * elements))
           .erratum();
     }},
    {"COST-27", "003", "L577-579", "costs", "state [2, 128, 160, 512] = 26.2 MB, headed [B, H, d_k, d_v]",
     V::erratum,
     [] {
       return Computation()
           .contrast("MB in 16 bit", 26.2, state_megabytes(2))
           .contrast("heads of the state", static_cast<double>(c.heads), static_cast<double>(s.virtual_heads))
           .erratum();
     }},
    {"COST-28", "003", "L581", "costs", "O(L^2) against O(L)", V::ok,
     [] {
       const auto matrix = [](costs::Count L) {
         return costs::softmax_attention_flops(L, c.heads, c.head_width, s.value_width);
       };
       const auto recurrence = [](costs::Count L) {
         return costs::product({L, costs::flops_per_token(c).recurrence});
       };
       return Computation()
           .count("attention at 2 L over L", matrix(2048) / matrix(1024), 4)
           .count("recurrence", recurrence(2048) / recurrence(1024), 2)
           .holds();
     }},
    {"COST-29", "003", "L584-587", "costs",
     "KV cache O(L): 1075 MB at 64k, 8600 MB at 512k; state 26.2 MB at both", V::erratum, cache_claims},
    {"COST-30", "003", "L592-599", "costs", "4082 ms against 121 ms at 512k, speedup 33.7 x", V::untestable,
     [] {
       return Computation()
           .rounds_to("4082 / 121", 4082.0 / 121.0, 33.7, 1)
           .untestable("times on a machine that the document does not name");
     }},
    {"COST-31a", "003", "L607", "costs", "1k: 16.8 vs 26.2 MB, -56 %", V::erratum,
     [] {
       return reduction({kKilo, 16.8, -56, 0, -150, -400, 0}).erratum();
     }},
    {"COST-31b", "003", "L608", "costs", "4k: 67.2 vs 26.2, 61 % better", V::erratum,
     [] {
       return reduction({4 * kKilo, 67.2, 61, 0, 37.5, -25, 1}).erratum();
     }},
    {"COST-31c", "003", "L609", "costs", "16k: 268.8 vs 26.2, 90 %", V::erratum,
     [] {
       return reduction({16 * kKilo, 268.8, 90, 0, 84.4, 68.8, 1}).erratum();
     }},
    {"COST-31d", "003", "L610", "costs", "64k: 1075 vs 26.2, 97.6 %", V::erratum,
     [] {
       return reduction({64 * kKilo, 1075, 97.6, 1, 96.1, 92.2, 1}).erratum();
     }},
    {"COST-31e", "003", "L611", "costs", "512k: 8600 vs 26.2, 99.7 %", V::erratum, break_even},
    {"DEND-57", "003", "L625-669", "dendritic_attention", "biological mapping table and its parameters",
     V::untestable,
     [] {
       return Computation()
           .count("ratio", c.branches, 8)
           .count("topk", c.routed, 2)
           .count("shared_head", c.shared, 1)
           .count("num_block", c.windows, 2)
           .count("overlap", c.overlap, 64)
           .shape("o_proj", {s.value_channels, c.hidden}, {4096, 2048})
           .untestable("analogies; the parameters are checked");
     }},
    {"DEND-58", "003", "L711-721", "gated_delta_rule",
     "dependencies: chunk and fused-recurrent gated delta rule, ShortConvolution, RMSNorm, ..", V::ok,
     [] {
       const Sequence<double> x = drawn_sequence(19, 5, 3);
       return Computation()
           .agree("chunks of 8, and the recurrence that they name", chunked<GatedDeltaRule>(x, 8).o,
                  recurrent<GatedDeltaRule>(x).o)
           .contrast_all("the rule that they name, and DEND-31 without its delta term",
                         recurrent<Retention>(x).o, recurrent<GatedDeltaRule>(x).o)
           .identity("gdn_chunked")
           .holds();
     }},
};

}  // namespace

std::span<const Equation> rows() { return kRows; }

}  // namespace samestate::document_003_claim_equations

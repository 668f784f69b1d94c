#include "oracles/proofs/equations/computation.h"
#include "oracles/proofs/equations/data.h"
#include "oracles/proofs/equations/groups.h"
#include "reference/costs.h"
#include "reference/latent_attention.h"

/// Document 004: multi-head latent attention and its cache.
namespace samestate::document_004_latent_equations {
namespace {

using V = LedgerVerdict;
using M = Matrix<double>;

const costs::LatentAttentionConfig kModel;
const double kFull = static_cast<double>(costs::uncompressed_cache_per_token(kModel));
const double kLatent = static_cast<double>(costs::latent_cache_per_token(kModel, false));
const double kBoth = static_cast<double>(costs::latent_cache_per_token(kModel));

/// The document's literal layer, no norm and no rotation: 2 heads of 4, latent of 3, 7 tokens of width 6.
struct LiteralLayer {
  LatentAttentionWeights<double> weights;
  M x;
  LatentAttention<double> out;
  KeyValueCache<double> restored;
  LiteralLayer() {
    IdentityDraw<double> draw(1);
    weights.heads = 2;
    weights.q_up = draw.normal(8, 6);
    weights.kv_down = draw.normal(3, 6);
    weights.kv_up = draw.normal(16, 3);
    weights.output = draw.normal(6, 8);
    x = draw.normal(7, 6);
    out = latent_attention(x, weights, rotary_tables<double>(0, 7, 0, 1e4));
    restored = restored_keys_values(out.cache, weights);
  }
};

double gigabytes(costs::Count bytes) { return static_cast<double>(bytes) / 1e9; }

Finding cache_of_seventy_billion() {
  const costs::AttentionConfig multi_head;
  costs::AttentionConfig grouped = multi_head;
  grouped.kv_heads = 8;
  const double all = gigabytes(costs::key_value_cache_bytes(multi_head, 131072, 1, 2));
  const double eight = gigabytes(costs::key_value_cache_bytes(grouped, 131072, 1, 2));
  return Computation()
      .rounds_to("GB, 64 key-value heads, 16 bit", all, 343.6, 1)
      .rounds_to("GB, 8 key-value heads", eight, 42.9, 1)
      .relation("100GB+ for 64 heads, not for 8", all > 100.0 && eight < 100.0)
      .contrast("GB of a 70B model with 8 key-value heads", 100.0, eight)
      .erratum();
}

const Equation kRows[] = {
    {"COST-34", "004", "L140", "costs", "MLA saves 98.4 % of the KV cache compared with Llama",
     V::inconsistent,
     [] {
       const double grouped = static_cast<double>(costs::key_value_cache_per_token({1, 64, 8, 128}));
       return Computation()
           .rounds_to("saved, %, of keys AND values of 128 heads", 100.0 * (1.0 - kLatent / kFull), 98.4, 1)
           .rounds_to("with the rotary key", 100.0 * (1.0 - kBoth / kFull), 98.24, 2)
           .rounds_to("against 8 key-value heads", 100.0 * (1.0 - kBoth / grouped), 71.9, 1)
           .contrast("kept, %, of COST-38 and of this row", 100.0 * kLatent / 16384.0,
                     100.0 * kLatent / kFull)
           .remark("resolution: 98.24 % against 128-head attention")
           .resolved();
     }},
    {"MLA-1", "004", "L144", "latent_attention", "MHA stores full K and V for every token", V::ok,
     [] {
       const LiteralLayer layer;
       return Computation()
           .shape("K of 7 tokens, 2 heads of 4", {layer.restored.k.rows(), layer.restored.k.cols()}, {7, 8})
           .shape("V", {layer.restored.v.rows(), layer.restored.v.cols()}, {7, 8})
           .count("numbers a token, 128 heads of 128", costs::uncompressed_cache_per_token(kModel),
                  2 * 128 * 128)
           .holds();
     }},
    {"COST-35", "004", "L145", "costs", "Cache = 2 Layers Heads HeadDim", V::incomplete,
     [] {
       const costs::AttentionConfig model{2, 4, 2, 8};
       return Computation()
           .count("elements a token of 2 layers, 2 key-value heads of 8",
                  costs::key_value_cache_per_token(model), 2 * 2 * 2 * 8)
           .count("bytes of 10 tokens, batch 3, 16 bit", costs::key_value_cache_bytes(model, 10, 3, 2),
                  64 * 10 * 3 * 2)
           .remark("missing: length, batch, bytes an element; Heads are key-value heads")
           .resolved();
     }},
    {"COST-36", "004", "L146", "costs", "70B model, 128k context: 100GB+ of KV cache", V::erratum,
     cache_of_seventy_billion},
    {"MLA-2", "004", "L150", "latent_attention", "K and V are low rank; store one latent C_KV", V::ok,
     [] {
       const LiteralLayer layer;
       M both(7, 16);
       both << layer.restored.k, layer.restored.v;
       return Computation()
           .count("rank of [K | V], 7 x 16, from a latent of 3", both.fullPivLu().rank(), 3)
           .count("numbers a token in the cache", layer.out.cache.numbers_per_token(), 3)
           .holds();
     }},
    {"MLA-3", "004", "L154-155", "latent_attention",
     "C_KV = X W_Down; d_c = 512, far below 128 x 128 = 16384", V::incomplete,
     [] {
       const LiteralLayer layer;
       return Computation()
           .agree("latent of the literal layer", layer.out.cache.latent,
                  linear(layer.x, layer.weights.kv_down))
           .count("16384 / 512", costs::product({128, 128}) / kModel.latent_width, 32)
           .identity("mla_no_latent_norm")
           .remark("missing: RMSNorm of the latent, which is what is cached")
           .resolved();
     }},
    {"MLA-4", "004", "L156", "latent_attention", "only C_KV is cached", V::incomplete,
     [] {
       return Computation()
           .count("numbers a token with the rotary key", costs::latent_cache_per_token(kModel), 576)
           .contrast("numbers a token", kLatent, kBoth)
           .identity("mla_no_rotary_key")
           .identity("mla_decode")
           .resolved();
     }},
    {"MLA-5", "004", "L158-159", "latent_attention", "K = C_KV W_UpK", V::ok,
     [] {
       const LiteralLayer layer;
       return Computation()
           .agree("K of head 1", layer.restored.k.rightCols(4).eval(),
                  (layer.out.cache.latent * layer.weights.key_up(1).transpose()).eval())
           .count("columns of the model", costs::product({kModel.heads, kModel.key_width}), 128 * 128)
           .holds();
     }},
    {"MLA-6", "004", "L160", "latent_attention", "V = C_KV W_UpV", V::ok,
     [] {
       const LiteralLayer layer;
       return Computation()
           .agree("V of head 0", layer.restored.v.leftCols(4).eval(),
                  (layer.out.cache.latent * layer.weights.value_up(0).transpose()).eval())
           .count("columns of the model", costs::product({kModel.heads, kModel.value_width}), 128 * 128)
           .holds();
     }},
    {"MLA-7", "004", "L158", "latent_attention", "K, V are temporarily restored at inference",
     V::ok_qualified,
     [] {
       return Computation()
           .identity("mla_absorbed")
           .identity("mla_fully_absorbed")
           .identity("mla_literal_absorbed")
           .remark("the absorbed forms never restore them")
           .holds();
     }},
    {"COST-37", "004", "L165-167", "costs", "Heads 128, HeadDim 128; MHA dimension 16384; d_c 512",
     V::erratum,
     [] {
       return Computation()
           .count("128 x 128, keys OR values", costs::product({kModel.heads, kModel.key_width}), 16384)
           .count("keys AND values", costs::uncompressed_cache_per_token(kModel), 32768)
           .contrast("numbers a token that MHA stores", 16384.0, kFull)
           .erratum();
     }},
    {"COST-38", "004", "L169", "costs", "512 / 16384 = about 3 %", V::inconsistent,
     [] {
       return Computation()
           .equal("512 / 16384, %", 100.0 * kLatent / 16384.0, 3.125)
           .equal("512 / 32768, %", 100.0 * kLatent / kFull, 1.5625)
           .contrast("kept, %, here and in the 98.4 % of COST-34", 3.125, 100.0 * kLatent / kFull)
           .remark("resolution: 1.5625 %, keys and values")
           .resolved();
     }},
    {"COST-39", "004", "L171", "costs", "MLA needs 3 % of MHA's memory", V::erratum,
     [] {
       return Computation()
           .rounds_to("latent alone, %", 100.0 * kLatent / kFull, 1.56, 2)
           .rounds_to("with the rotary key, %", 100.0 * kBoth / kFull, 1.76, 2)
           .contrast("memory, %", 3.0, 100.0 * kBoth / kFull)
           .erratum();
     }},
};

}  // namespace

std::span<const Equation> rows() { return kRows; }

}  // namespace samestate::document_004_latent_equations

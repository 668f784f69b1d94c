#include "reference/latent_attention.h"

#include <string>
#include <utility>

#include "oracles/systems/explicit_chunk.h"
#include "oracles/systems/instances.h"
#include "oracles/systems/latent_stages.h"
#include "oracles/systems/row_costs.h"
#include "oracles/systems/rows.h"
#include "reference/costs/causal_attention.h"

namespace samestate {
namespace {

bool has_rotary_pairs(const Call& call) { return call.at("dr") % 2 == 0; }

void require_pairs(const Call& call) {
  if (!has_rotary_pairs(call)) {
    throw Error("dr=" + std::to_string(call.at("dr")) +
                ": rotary columns turn in pairs; give an even number");
  }
}

/// Without rotary columns there are no tables either.
void add_tables(const Call& call, Signature& signature) {
  const Index dr = call.at("dr");
  if (dr == 0) return;
  signature.inputs.push_back({"cos", Axis::tokens, {call.tokens, dr / 2}, Content::cosine});
  signature.inputs.push_back({"sin", Axis::tokens, {call.tokens, dr / 2}, Content::sine});
}

/// x -> c, k^R: what one token adds to the cache.
struct Cache {
  static Signature signature(const Call& call) {
    require_pairs(call);
    const Index D = call.at("D");
    const Index dc = call.at("dc");
    const Index dr = call.at("dr");
    Signature s{{{"x", Axis::tokens, {call.tokens, D}, Content::activation},
                 {"kv_down", Axis::whole, {dc + dr, D}, Content::weight},
                 {"kv_norm", Axis::whole, {dc}, Content::scale}},
                {{"c", Axis::tokens, {call.tokens, dc}}}};
    add_tables(call, s);
    if (dr > 0) s.outputs.push_back({"kr", Axis::tokens, {call.tokens, dr}});
    return s;
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Index dc = call.at("dc");
    LatentAttentionWeights<Scalar> weights;  // one head with one value column, which the cache does not use
    weights.q_up = Matrix<Scalar>(1 + call.at("dr"), call.at("D"));
    weights.kv_down = get(inputs, "kv_down");
    weights.kv_norm = get_vector(inputs, "kv_norm");
    weights.kv_up = Matrix<Scalar>(2, dc);
    weights.output = Matrix<Scalar>(call.at("D"), 1);
    weights.epsilon = Scalar(kLatentEpsilon);
    LatentCache<Scalar> cache = latent_of(get(inputs, "x"), weights, latent_tables(call, inputs));
    Tensors<Scalar> out{{"c", std::move(cache.latent)}};
    if (call.at("dr") > 0) out.emplace("kr", std::move(cache.rotary_key));
    return out;
  }
};

LatentForm form_named(std::string_view name) {
  if (name == "absorbed") return LatentForm::absorbed;
  return name == "fully_absorbed" ? LatentForm::fully_absorbed : LatentForm::naive;
}

/// x and the cache of all tokens so far -> y.
struct Attention {
  static Signature signature(const Call& call) {
    require_pairs(call);
    const Index D = call.at("D");
    const Index H = call.at("H");
    const Index dr = call.at("dr");
    const Index dc = call.at("dc");
    const Index compressed = call.at("q_lora");
    Signature s{
        {{"x", Axis::tokens, {call.tokens, D}, Content::activation},
         {"c", Axis::prefix, {call.tokens, dc}, Content::activation},
         {"q_up", Axis::whole, {H * (call.at("dn") + dr), compressed > 0 ? compressed : D}, Content::weight},
         {"kv_up", Axis::whole, {H * (call.at("dn") + call.at("dv")), dc}, Content::weight},
         {"output", Axis::whole, {D, H * call.at("dv")}, Content::weight}},
        {{"y", Axis::tokens, {call.tokens, D}}}};
    if (dr > 0) s.inputs.push_back({"kr", Axis::prefix, {call.tokens, dr}, Content::activation});
    add_tables(call, s);
    if (compressed > 0) {
      s.inputs.push_back({"q_down", Axis::whole, {compressed, D}, Content::weight});
      s.inputs.push_back({"q_norm", Axis::whole, {compressed}, Content::scale});
    }
    return s;
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const LatentAttentionWeights<Scalar> weights = latent_attention_weights(call, inputs);
    const Matrix<Scalar>& c = get(inputs, "c");
    // (q W_UK) c or q (W_UK c), (p c) W_UV or p (c W_UV): every second sample associates the products of
    // three matrices the other way.
    LatentForm form = form_named(call.form);
    // In 16 bits a form stores its own products, which its contract names.
    if (associates_otherwise<Scalar>() && detail::sampling().model.kept == Format::none)
      form = form == LatentForm::naive ? LatentForm::absorbed : LatentForm::naive;
    return {{"y", latent_attention_cached<Scalar>(
                      get(inputs, "x"), weights, latent_tables(call, inputs), form,
                      {c, call.at("dr") > 0 ? get(inputs, "kr") : Matrix<Scalar>(c.rows(), 0)})
                      .y}};
  }
};

}  // namespace

std::vector<Operator> latent_attention_operators() {
  // The standard size is small: under 16-bit contracts the bound grows with the root of every width, through
  // six products.
  const Parameter width{"D", 8, 1, 16384, "model width"};
  const Parameter latent{"dc", 4, 1, 4096, "columns of the latent"};
  const Parameter rotary{"dr", 2, 0, 512, "rotary columns, in pairs"};
  Operator cache{"latent_cache",
                 "c = RMSNorm(x W_dkv), k^R = RoPE(x W_kr) (MLA-3, C-MLA)",
                 {width, latent, rotary},
                 {{"direct"}},
                 true,
                 Cache::signature};
  evaluate_with<Cache>(cache);
  cache.token_wise = true;
  cache.possible = has_rotary_pairs;
  cache.cost = [](const Call& call, const Signature& signature) { return row_costs::maps(call, signature); };
  Operator attention{"latent_attention",
                     "softmax((q^N . W_UK c + q^R . k^R) (dn + dr)^-1/2) W_UV c, W_O (MLA-5..7, C-MLA)",
                     {width,
                      {"H", 2, 1, 256, "heads"},
                      {"dn", 3, 1, 512, "non-rotary columns of a key head"},
                      rotary,
                      {"dv", 4, 1, 512, "value columns of a head"},
                      latent,
                      {"q_lora", 2, 0, 8192, "columns of the compressed query; 0: none"}},
                     {{"naive"}, {"absorbed"}, {"fully_absorbed"}},
                     true,
                     Attention::signature};
  evaluate_with<Attention>(attention);
  attention.possible = has_rotary_pairs;
  attention.cost = [](const Call& call, const Signature& signature) {
    // In absorbed form a key has the latent and the rotary columns, and a value is the latent.
    const bool naive = call.form == "naive";
    const costs::Count key = costs::sum({naive ? call.at("dn") : call.at("dc"), call.at("dr")});
    return Cost{costs::sum({row_costs::maps(call, signature).operations,
                            costs::causal_attention_flops(call.tokens, call.at("H"), key,
                                                          naive ? call.at("dv") : call.at("dc"))})};
  };
  return {std::move(cache), std::move(attention)};
}

}  // namespace samestate

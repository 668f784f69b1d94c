#include "reference/softmax_attention.h"

#include "oracles/systems/gated_attention_stages.h"
#include "oracles/systems/instances.h"
#include "oracles/systems/row_costs.h"
#include "oracles/systems/rows.h"
#include "reference/costs/causal_attention.h"
#include "reference/layers/gated_attention.h"

namespace samestate {
namespace {

bool is_grouped(const Call& call) { return call.at("H") % call.at("Hkv") == 0; }

/// Throws Error unless key heads divide query heads.
void require_grouped(const Call& call) {
  if (is_grouped(call)) return;
  throw Error("H=" + std::to_string(call.at("H")) + ": must be a multiple of Hkv=" +
              std::to_string(call.at("Hkv")) + ", the query heads of a key head");
}

struct Attention {
  static Signature signature(const Call& call) {
    require_grouped(call);
    const Index keys = call.at("Hkv") * call.at("d");
    const Index values = call.at("Hkv") * call.at("dv");
    return {{{"q", Axis::tokens, {call.tokens, call.at("H") * call.at("d")}, Content::activation},
             {"k", Axis::prefix, {call.tokens, keys}, Content::activation},
             {"v", Axis::prefix, {call.tokens, values}, Content::activation}},
            {{"o", Axis::tokens, {call.tokens, call.at("H") * call.at("dv")}}}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    using std::sqrt;
    AttentionInputs<Scalar> x;
    x.q = get(inputs, "q");
    x.k = get(inputs, "k");
    x.v = get(inputs, "v");
    x.heads = call.at("H");
    x.key_heads = call.at("Hkv");
    x.scale = Scalar(1) / Scalar(sqrt(Scalar(static_cast<double>(call.at("d")))));
    return {{"o", attend(call, x)}};
  }
};

bool turning_pairs_fit(const Call& call) { return 2 * call.at("pairs") <= call.at("d"); }

struct GatedLayer {
  static Signature signature(const Call& call) {
    require_grouped(call);
    const Index T = call.tokens;
    const Index D = call.at("D");
    const Index d = call.at("d");
    const Index H = call.at("H");
    const Index keys = call.at("Hkv") * d;
    const Index pairs = call.at("pairs");
    if (!turning_pairs_fit(call)) {
      throw Error("pairs=" + std::to_string(pairs) + ": a head of d=" + std::to_string(d) +
                  " columns has at most " + std::to_string(d / 2) + " pairs");
    }
    return {{{"hidden", Axis::tokens, {T, D}, Content::activation},
             {"q_proj", Axis::whole, {H * 2 * d, D}, Content::weight},
             {"k_proj", Axis::whole, {keys, D}, Content::weight},
             {"v_proj", Axis::whole, {keys, D}, Content::weight},
             {"o_proj", Axis::whole, {D, H * d}, Content::weight},
             {"q_norm", Axis::whole, {d}, Content::offset},
             {"k_norm", Axis::whole, {d}, Content::offset},
             {"cosine", Axis::tokens, {T, pairs}, Content::cosine},
             {"sine", Axis::tokens, {T, pairs}, Content::sine}},
            {{"out", Axis::tokens, {T, D}},
             {"gated", Axis::tokens, {T, H * d}},
             {"k", Axis::tokens, {T, keys}},
             {"v", Axis::tokens, {T, keys}}}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const GatedAttentionParameters<Scalar> p = gated_attention_parameters(call, inputs);
    const RotaryTables<Scalar> tables{get(inputs, "cosine"), get(inputs, "sine")};
    GatedAttentionOutput<Scalar> out =
        gated_attention(get(inputs, "hidden"), p, tables, KeyValueCache<Scalar>{},
                        [&](const AttentionInputs<Scalar>& x) { return attend(call, x); });
    return {{"out", std::move(out.out)},
            {"gated", std::move(out.gated)},
            {"k", std::move(out.cache.k)},
            {"v", std::move(out.cache.v)}};
  }
};

}  // namespace

std::vector<Operator> softmax_attention_operators() {
  Operator attention{"softmax_attention",
                     "o_t = sum_s p_ts v_s, p_t the softmax of q_t . k_s / sqrt d over s <= t (DEND-55)",
                     {{"H", 4, 1, 128, "query heads", "Hkv"},
                      {"Hkv", 2, 1, 128, "key heads, each shared by H / Hkv query heads"},
                      {"d", 32, 1, 1024, "width of queries and keys"},
                      {"dv", 32, 1, 1024, "width of values"}},
                     {{"naive"}, {"online", true}, {"merged", true}, {"grouped"}},
                     true,
                     Attention::signature};
  evaluate_with<Attention>(attention);
  attention.cost = [](const Call& call, const Signature&) {
    return Cost{costs::causal_attention_flops(call.tokens, call.at("H"), call.at("d"), call.at("dv"))};
  };
  // With an empty cache the rows k and v are what the layer would leave in it.
  Operator layer{
      "gated_attention",
      "Qwen3-Next's layer: q, k normalised and turned, attention times sigma(gate) (GATT-1, GATT-2)",
      {{"D", 32, 1, 16384, "width of the model"},
       {"H", 4, 1, 128, "query heads", "Hkv"},
       {"Hkv", 2, 1, 128, "key heads"},
       {"d", 16, 2, 1024, "width of a head"},
       {"pairs", 2, 1, 512, "pairs of columns that turn, d / 8 in Qwen3-Next"}},
      {{"prefill"}, {"online", true}},
      false,
      GatedLayer::signature};
  evaluate_with<GatedLayer>(layer);
  layer.possible = [](const Call& call) { return is_grouped(call) && turning_pairs_fit(call); };
  layer.cost = [](const Call& call, const Signature& signature) {
    return Cost{
        costs::sum({row_costs::maps(call, signature).operations,
                    costs::causal_attention_flops(call.tokens, call.at("H"), call.at("d"), call.at("d"))})};
  };
  return {std::move(attention), std::move(layer)};
}

std::vector<NumpyText> softmax_attention_numpy() {
  return {{"softmax_attention", R"py(def reference(x, size):
    """o_t = sum_s p_ts v_s, p_t the softmax of q_t . k_s / sqrt d over s <= t; H / Hkv query heads share a key head"""
    T, H, Hkv, d, dv = len(x["q"]), size["H"], size["Hkv"], size["d"], size["dv"]
    o = np.empty((T, H * dv))
    for h in range(H):
        of = h // (H // Hkv)
        q, k = x["q"][:, h * d:(h + 1) * d], x["k"][:, of * d:(of + 1) * d]
        scores = np.where(np.tri(T, dtype=bool), q @ k.T / np.sqrt(d), -np.inf)
        p = np.exp(scores - scores.max(1, keepdims=True)) if T else scores
        o[:, h * dv:(h + 1) * dv] = p @ x["v"][:, of * dv:(of + 1) * dv] / p.sum(1, keepdims=True)
    return {"o": o}
)py"}};
}

}  // namespace samestate

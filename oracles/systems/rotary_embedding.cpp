#include "reference/rotary_embedding.h"

#include "oracles/systems/rows.h"

namespace samestate {
namespace {

bool turning_pairs_fit_heads(const Call& call) { return 2 * call.at("pairs") <= call.at("d"); }

struct Rotation {
  /// Throws Error if the pairs need more columns than a head has.
  static Signature signature(const Call& call) {
    const Index pairs = call.at("pairs");
    const Index d = call.at("d");
    if (!turning_pairs_fit_heads(call)) {
      throw Error("pairs=" + std::to_string(pairs) + ": a head of d=" + std::to_string(d) +
                  " columns has at most " + std::to_string(d / 2) + " pairs");
    }
    const Extents x = {call.tokens, call.at("H") * d};
    return {{{"x", Axis::tokens, x, Content::activation},
             {"cosine", Axis::tokens, {call.tokens, pairs}, Content::cosine},
             {"sine", Axis::tokens, {call.tokens, pairs}, Content::sine}},
            {{"y", Axis::tokens, x}}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const RotaryPairs pairs = call.at("interleaved") != 0 ? RotaryPairs::interleaved : RotaryPairs::halves;
    const RotaryTables<Scalar> tables{get(inputs, "cosine"), get(inputs, "sine")};
    return {{"y", rotate(get(inputs, "x"), tables, pairs, call.at("H"))}};
  }
};

}  // namespace

std::vector<Operator> rotary_embedding_operators() {
  // `full_width` repeats the tables over the columns of a head and turns all heads by one multiply-add a
  // column, as public kernels do: the same two products.
  Operator row{"rotary_embedding",
               "(x_i, x_j) -> (x_i cos - x_j sin, x_j cos + x_i sin) of every pair (CFG-10, EQUATIONS 5.7)",
               {{"H", 2, 1, 512, "heads"},
                {"d", 32, 2, 1024, "width of a head"},
                {"pairs", 8, 1, 512, "pairs of columns that turn; the other columns pass"},
                {"interleaved", 0, 0, 1, "0: pairs (i, i + pairs); 1: (2 i, 2 i + 1)"}},
               {{"equation"}, {"full_width"}},
               false,
               Rotation::signature};
  evaluate_with<Rotation>(row);
  row.token_wise = true;
  row.possible = turning_pairs_fit_heads;
  return {std::move(row)};
}

std::vector<NumpyText> rotary_embedding_numpy() {
  return {{"rotary_embedding", R"py(def reference(x, size):
    """(x_i, x_j) -> (x_i cos - x_j sin, x_j cos + x_i sin) of every pair; the other columns pass"""
    pairs = np.arange(size["pairs"])
    i, j = (2 * pairs, 2 * pairs + 1) if size["interleaved"] else (pairs, pairs + size["pairs"])
    y = x["x"].reshape(-1, size["H"], size["d"]).copy()
    cos, sin = x["cosine"][:, None, :], x["sine"][:, None, :]
    y[..., i], y[..., j] = y[..., i] * cos - y[..., j] * sin, y[..., j] * cos + y[..., i] * sin
    return {"y": y.reshape(x["x"].shape)}
)py"}};
}

}  // namespace samestate

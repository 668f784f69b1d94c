#include "oracles/systems/latent_stages.h"

#include <utility>

#include "oracles/systems/instances.h"
#include "oracles/systems/stage_points.h"
#include "reference/latent_attention.h"

namespace samestate {
namespace {

TensorSpec weight(std::string name, Index rows, Index columns) {
  return {std::move(name), Axis::whole, {rows, columns}, Content::weight};
}

/// The tensors that a step reads from the projection of all heads, and from the cache.
TensorSpec q_up_of(const Call& call, Index columns) {
  return weight("q_up", call.at("H") * (call.at("dn") + call.at("dr")), columns);
}
TensorSpec kv_up_of(const Call& call) {
  return weight("kv_up", call.at("H") * (call.at("dn") + call.at("dv")), call.at("dc"));
}
TensorSpec of_heads(const Call& call, const std::string& name, std::string_view size) {
  return of_tokens(call, name, {call.at("H"), call.at(size)});
}

/// The queries that read the cache: their rotary columns and those of the cache, if there are any.
std::vector<TensorSpec> asking(const Call& call, std::vector<TensorSpec> inputs) {
  inputs.push_back({"c", Axis::prefix, {call.tokens, call.at("dc")}, Content::activation});
  if (call.at("dr") > 0) {
    inputs.push_back({"kr", Axis::prefix, {call.tokens, call.at("dr")}, Content::activation});
    inputs.push_back(of_heads(call, "q_rotary", "dr"));
  }
  return inputs;
}

/// Weights with the call's widths, of which a step uses only those that it was given.
template <class Scalar>
LatentAttentionWeights<Scalar> weights_of(const Call& call, const Tensors<Scalar>& inputs) {
  const auto given = [&](const char* name, Index rows, Index columns) {
    return inputs.contains(name) ? get(inputs, name) : Matrix<Scalar>(rows, columns);
  };
  const Index H = call.at("H");
  LatentAttentionWeights<Scalar> weights;
  weights.heads = H;
  weights.q_up = given("q_up", H * (call.at("dn") + call.at("dr")), 0);
  weights.kv_down = Matrix<Scalar>(call.at("dc") + call.at("dr"), 0);
  weights.kv_up = given("kv_up", H * (call.at("dn") + call.at("dv")), call.at("dc"));
  weights.output = given("output", 0, H * call.at("dv"));
  weights.epsilon = Scalar(kLatentEpsilon);
  return weights;
}

/// A tensor [T, H, columns] as the reference has it, heads side by side.
template <class Scalar>
Matrix<Scalar> side_by_side(const Call& call, const Tensors<Scalar>& inputs, std::string_view name) {
  const Matrix<Scalar>& x = get(inputs, name);
  return x.template reshaped<Eigen::RowMajor>(call.tokens, call.at("H") * x.cols());
}
template <class Scalar>
Matrix<Scalar> under_one_another(const Call& call, const Matrix<Scalar>& x) {
  const Index H = call.at("H");
  return x.template reshaped<Eigen::RowMajor>(x.rows() * H, x.cols() / H);
}
template <class Scalar>
Matrix<Scalar> rotary_of(const Call& call, const Tensors<Scalar>& inputs) {
  if (call.at("dr") == 0) return Matrix<Scalar>(call.tokens, 0);
  return side_by_side(call, inputs, "q_rotary");
}
template <class Scalar>
LatentCache<Scalar> cache_of(const Call& call, const Tensors<Scalar>& inputs) {
  const Matrix<Scalar>& c = get(inputs, "c");
  return {c, call.at("dr") > 0 ? get(inputs, "kr") : Matrix<Scalar>(c.rows(), 0)};
}

/// W_UK moved to the queries.
struct Absorption {
  static Signature signature(const Call& call) {
    return {{of_heads(call, "q_nope", "dn"), kv_up_of(call)}, {of_heads(call, "q_latent", "dc")}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Matrix<Scalar> q = absorbed_queries(side_by_side(call, inputs, "q_nope"), weights_of(call, inputs));
    return {{"q_latent", under_one_another(call, q)}};
  }
};

/// The same, merged into the queries' projection.
struct MergedQueries {
  static Signature signature(const Call& call) {
    const Index in = call.at("In");
    return {{of_tokens(call, "x", {in}), q_up_of(call, in), kv_up_of(call)},
            {of_heads(call, "q_latent", "dc")}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    return {
        {"q_latent", under_one_another(call, merged_queries(get(inputs, "x"), weights_of(call, inputs)))}};
  }
};

/// Only the rotary columns of the queries, projected and rotated.
struct RotaryQueries {
  static Signature signature(const Call& call) {
    const Index in = call.at("In");
    const Index pairs = call.at("dr") / 2;
    return {{of_tokens(call, "x", {in}), q_up_of(call, in), of_tokens(call, "cos", {pairs}, Content::cosine),
             of_tokens(call, "sin", {pairs}, Content::sine)},
            {of_heads(call, "q_rotary", "dr")}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Index H = call.at("H");
    const LatentAttentionWeights<Scalar> weights = weights_of(call, inputs);
    const LatentWidths w = weights.widths();
    const Matrix<Scalar> q = linear(get(inputs, "x"), weights.q_up, points::latent_attention_rotary["q_up"]);
    const Matrix<Scalar> turned =
        detail::rotated(detail::part_of_heads(q, H, w.key(), w.nope, w.rope), weights,
                        RotaryTables<Scalar>{get(inputs, "cos"), get(inputs, "sin")}, H);
    return {{"q_rotary", under_one_another(call, turned)}};
  }
};

/// Attention to the latents.
struct LatentSums {
  static Signature signature(const Call& call) {
    return {asking(call, {of_heads(call, "q_latent", "dc")}), {of_heads(call, "mixed", "dc")}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Matrix<Scalar> mixed =
        attend_latent(side_by_side(call, inputs, "q_latent"), rotary_of(call, inputs),
                      weights_of(call, inputs), cache_of(call, inputs));
    return {{"mixed", under_one_another(call, mixed)}};
  }
};

/// Attention to keys and values that it restores itself.
struct RestoredSums {
  static Signature signature(const Call& call) {
    return {asking(call, {of_heads(call, "q_nope", "dn"), kv_up_of(call)}), {of_heads(call, "heads", "dv")}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Matrix<Scalar> heads =
        attend_restored(side_by_side(call, inputs, "q_nope"), rotary_of(call, inputs),
                        weights_of(call, inputs), cache_of(call, inputs));
    return {{"heads", under_one_another(call, heads)}};
  }
};

/// W_UV applied after the sums.
struct Values {
  static Signature signature(const Call& call) {
    return {{of_heads(call, "mixed", "dc"), kv_up_of(call)}, {of_heads(call, "heads", "dv")}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Matrix<Scalar> heads = mixed_values(side_by_side(call, inputs, "mixed"), weights_of(call, inputs));
    return {{"heads", under_one_another(call, heads)}};
  }
};

/// The same, merged into the output's projection.
struct MergedOutput {
  static Signature signature(const Call& call) {
    const Index D = call.at("D");
    return {
        {of_heads(call, "mixed", "dc"), kv_up_of(call), weight("output", D, call.at("H") * call.at("dv"))},
        {of_tokens(call, "y", {D})}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    return {{"y", merged_output(side_by_side(call, inputs, "mixed"), weights_of(call, inputs))}};
  }
};

/// The input of the query projection, and its width.
struct QueryInput {
  explicit QueryInput(const Call& call)
      : name(call.at("q_lora") > 0 ? "compressed_normed" : "x"),
        width(call.at("q_lora") > 0 ? call.at("q_lora") : call.at("D")) {}
  std::string name;
  Index width;
};

void add_compression(const Call& call, LayerStages& to) {
  const Index width = call.at("q_lora");
  if (width == 0) return;
  to.taps.push_back(of_tokens(call, "compressed", {width}));
  to.taps.push_back(of_tokens(call, "compressed_normed", {width}));
  to.stages.push_back(stage_of("compression", linear_map(), call, {{"In", call.at("D")}, {"Out", width}},
                               {{"x", "x"}, {"weight", "q_down"}}, {{"y", "compressed"}}));
  to.stages.push_back(stage_of("norm", "rms_norm", call, {{"H", 1}, {"D", width}},
                               {{"x", "compressed"}, {"weight", "q_norm"}}, {{"y", "compressed_normed"}}));
}

/// Queries with all columns, the rotary ones rotated.
void add_queries(const Call& call, LayerStages& to) {
  const QueryInput x(call);
  const Index H = call.at("H");
  const Index dr = call.at("dr");
  const Index key = call.at("dn") + dr;
  to.taps.push_back(of_tokens(call, "q", {H, key}));
  to.stages.push_back(stage_of("queries", linear_map(), call, {{"In", x.width}, {"Out", H * key}},
                               {{"x", x.name}, {"weight", "q_up"}}, {{"y", "q"}}));
  if (dr == 0) return;
  to.taps.push_back(of_heads(call, "q_rotary", "dr"));
  to.stages.push_back(stage_of(
      "rotation", "rotary_embedding", call, {{"H", H}, {"d", dr}, {"pairs", dr / 2}, {"interleaved", 1}},
      {{"x", "q", call.at("dn"), dr}, {"cosine", "cos"}, {"sine", "sin"}}, {{"y", "q_rotary"}}));
}

/// Queries of the latent by merged weights, and the rotary ones.
void add_merged_queries(const Call& call, LayerStages& to) {
  static const Operator merged =
      stage_operator<MergedQueries>("latent_attention.merged_queries", "W_UK^T W_UQ x");
  static const Operator rotary = stage_operator<RotaryQueries>("latent_attention.rotary", "RoPE(W_QR x)");
  const QueryInput x(call);
  const auto add = [&](std::string_view name, const Operator& op, std::vector<StageTensor> reads,
                       const std::string& writes) {
    Stage stage = stage_of(name, op, call, std::move(reads), {{writes, writes}});
    stage.call.parameters.emplace("In", x.width);
    to.stages.push_back(std::move(stage));
  };
  if (call.at("dr") > 0) {
    to.taps.push_back(of_heads(call, "q_rotary", "dr"));
    add("rotary queries", rotary, {{"x", x.name}, {"q_up", "q_up"}, {"cos", "cos"}, {"sin", "sin"}},
        "q_rotary");
  }
  add("merged queries", merged, {{"x", x.name}, {"q_up", "q_up"}, {"kv_up", "kv_up"}}, "q_latent");
}

/// Attention of either kind; `reads` are its inputs besides the cache and the rotary queries.
void add_attention(const Call& call, const Operator& op, std::vector<StageTensor> reads,
                   const std::string& writes, LayerStages& to) {
  reads.push_back({"c", "c"});
  if (call.at("dr") > 0) {
    reads.push_back({"kr", "kr"});
    reads.push_back({"q_rotary", "q_rotary"});
  }
  to.stages.push_back(stage_of("attention", op, call, std::move(reads), {{writes, writes}}));
}

/// Attention to latents; its queries and its sums are taps.
void add_latent_sums(const Call& call, LayerStages& to) {
  static const Operator sums = stage_operator<LatentSums>(
      "latent_attention.sums", "sum_s p_ts c_s, p_t of (q^L . c + q^R . k^R)", {{"equation"}}, true);
  to.taps.push_back(of_heads(call, "q_latent", "dc"));
  to.taps.push_back(of_heads(call, "mixed", "dc"));
  add_attention(call, sums, {{"q_latent", "q_latent"}}, "mixed", to);
}

void add_output(const Call& call, LayerStages& to) {
  to.taps.push_back(of_heads(call, "heads", "dv"));
  to.stages.push_back(stage_of("output", linear_map(), call,
                               {{"In", call.at("H") * call.at("dv")}, {"Out", call.at("D")}},
                               {{"x", "heads"}, {"weight", "output"}}, {{"y", "y"}}));
}

}  // namespace

LayerStages latent_cache_stages(const Call& call) {
  const Index dc = call.at("dc");
  const Index dr = call.at("dr");
  LayerStages out;
  out.taps = {of_tokens(call, "projected", {dc + dr})};
  out.stages = {stage_of("projection", linear_map(), call, {{"In", call.at("D")}, {"Out", dc + dr}},
                         {{"x", "x"}, {"weight", "kv_down"}}, {{"y", "projected"}}),
                stage_of("norm", "rms_norm", call, {{"H", 1}, {"D", dc}},
                         {{"x", "projected", 0, dc}, {"weight", "kv_norm"}}, {{"y", "c"}})};
  if (dr > 0)
    out.stages.push_back(stage_of(
        "rotation", "rotary_embedding", call, {{"H", 1}, {"d", dr}, {"pairs", dr / 2}, {"interleaved", 1}},
        {{"x", "projected", dc, dr}, {"cosine", "cos"}, {"sine", "sin"}}, {{"y", "kr"}}));
  return out;
}

LayerStages latent_attention_stages(const Call& call) {
  static const Operator absorption = stage_operator<Absorption>("latent_attention.absorption", "W_UK^T q^N");
  static const Operator restored = stage_operator<RestoredSums>(
      "latent_attention.restored", "sum_s p_ts W_UV c_s, p_t of (q^N . W_UK c + q^R . k^R)", {{"equation"}},
      true);
  static const Operator values = stage_operator<Values>("latent_attention.values", "W_UV sum_s p_ts c_s");
  static const Operator output =
      stage_operator<MergedOutput>("latent_attention.merged_output", "W_O W_UV sum_s p_ts c_s");
  const StageTensor q_nope{"q_nope", "q", 0, call.at("dn")};
  LayerStages out;
  add_compression(call, out);
  if (call.form == "fully_absorbed") {
    add_merged_queries(call, out);
    add_latent_sums(call, out);
    out.stages.push_back(stage_of("merged output", output, call,
                                  {{"mixed", "mixed"}, {"kv_up", "kv_up"}, {"output", "output"}},
                                  {{"y", "y"}}));
    return out;
  }
  add_queries(call, out);
  if (call.form == "naive") {
    add_attention(call, restored, {q_nope, {"kv_up", "kv_up"}}, "heads", out);
  } else {
    out.stages.push_back(
        stage_of("absorption", absorption, call, {q_nope, {"kv_up", "kv_up"}}, {{"q_latent", "q_latent"}}));
    add_latent_sums(call, out);
    out.stages.push_back(
        stage_of("values", values, call, {{"mixed", "mixed"}, {"kv_up", "kv_up"}}, {{"heads", "heads"}}));
  }
  add_output(call, out);
  return out;
}

}  // namespace samestate

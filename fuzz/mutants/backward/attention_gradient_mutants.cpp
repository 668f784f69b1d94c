#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "fuzz/mutants/operators/changed_call.h"
#include "optimized/cpu/backward/softmax_attention.h"
#include "optimized/cpu/rounding.h"

/// Faults of the backward passes of attention: terms and tiles that are lost, the mask and the scale, heads of a group, and
/// sums in 16 bits.
namespace samestate::mutants {
namespace {

using Call = ChangedCall;

/// The right kernel with other steps.
template <class Steps>
CallFault with_steps() {
  return [](const OperatorKernel&, Call& c, const Contract& contract) {
    return cpu::softmax_attention_backward_with(
        c.call, contract,
        []() -> std::unique_ptr<cpu::ReverseAttention> { return std::make_unique<Steps>(); });
  };
}

/// dS = P o dP.
struct DeltaLost : cpu::ReverseAttention {
  void read_forward(const cpu::ReverseHead& head, std::int64_t tile) override {
    ReverseAttention::read_forward(head, tile);
    std::ranges::fill(delta_, 0.0F);
  }
};
/// dS = P o (dP - delta) with the delta of the token before.
struct DeltaOfTheTokenBefore : cpu::ReverseAttention {
  void read_forward(const cpu::ReverseHead& head, std::int64_t tile) override {
    ReverseAttention::read_forward(head, tile);
    if (delta_.size() > 1) std::rotate(delta_.begin(), delta_.end() - 1, delta_.end());
  }
};
struct LseInBf16 : cpu::ReverseAttention {
  void read_forward(const cpu::ReverseHead& head, std::int64_t tile) override {
    ReverseAttention::read_forward(head, tile);
    for (float& x : lse_) x = cpu::to_bf16(x);
  }
};
struct DeltaInBf16 : cpu::ReverseAttention {
  void read_forward(const cpu::ReverseHead& head, std::int64_t tile) override {
    ReverseAttention::read_forward(head, tile);
    for (float& x : delta_) x = cpu::to_bf16(x);
  }
};
/// In the backward pass a query sees the key behind its own too.
struct SeesOneMore : cpu::ReverseAttention {
  [[nodiscard]] std::int64_t seen(const cpu::ReverseHead& head, const Tile& tile,
                                  std::int64_t i) const override {
    const std::int64_t right = ReverseAttention::seen(head, tile, i);
    const bool own = tile.begin <= tile.first + i + 1;
    return own ? std::min(right + 1, tile.end - tile.begin) : right;
  }
};
/// In the backward pass a query does not see its own key.
struct SeesOneLess : cpu::ReverseAttention {
  [[nodiscard]] std::int64_t seen(const cpu::ReverseHead& head, const Tile& tile,
                                  std::int64_t i) const override {
    const std::int64_t right = ReverseAttention::seen(head, tile, i);
    return tile.begin + right == tile.first + i + 1 && right > 0 ? right - 1 : right;
  }
};
/// Whole tiles alone are taken, if there is one.
struct LastTileLost : cpu::ReverseAttention {
  [[nodiscard]] std::int64_t keys_taken(std::int64_t keys, std::int64_t tile) const override {
    return keys > tile ? keys / tile * tile : keys;
  }
};
/// A tile of keys overwrites what earlier ones added to dq.
struct TilesOverwrite : cpu::ReverseAttention {
  void accumulate(const cpu::ReverseHead& head, const Tile& tile) override {
    for (std::int64_t i = 0; i < tile.n; ++i) std::fill_n(d_q_.row(tile.first + i), d_q_.stride, 0.0F);
    ReverseAttention::accumulate(head, tile);
  }
};
/// dv = P dO.
struct NotTransposed : cpu::ReverseAttention {
  void accumulate(const cpu::ReverseHead& head, const Tile& tile) override {
    if (tile.n != tile.end - tile.begin) return ReverseAttention::accumulate(head, tile);
    const cpu::Block before = d_v_;
    ReverseAttention::accumulate(head, tile);
    d_v_ = before;
    accumulate_values(head, P_, tile);
  }
};
/// dq is kept in bf16 from one tile of keys to the next.
struct QueriesInBf16 : cpu::ReverseAttention {
  void accumulate(const cpu::ReverseHead& head, const Tile& tile) override {
    ReverseAttention::accumulate(head, tile);
    for (std::int64_t i = 0; i < tile.n; ++i)
      cpu::round_values(d_q_.row(tile.first + i), d_q_.row(tile.first + i), d_q_.stride, Format::bf16);
  }
};
/// dk and dv are kept in bf16 from one block of queries to the next.
struct KeysInBf16 : cpu::ReverseAttention {
  void accumulate(const cpu::ReverseHead& head, const Tile& tile) override {
    ReverseAttention::accumulate(head, tile);
    cpu::round_in_place(d_k_, Format::bf16);
    cpu::round_in_place(d_v_, Format::bf16);
  }
};

// Factors of an output that has the scale once.
float once_more(const Call& c) { return 1.0F / root_of(c.at("d")); }
float not_at_all(const Call& c) { return root_of(c.at("d")); }
void no_scale_of_scores(Call& c) {
  c.each("q", [s = root_of(c.at("d"))](float x) { return x * s; });
}
/// A query sees the next key and not the first, in both passes.
void next_keys(Call& c) {
  next_token("k")(c);
  next_token("v")(c);
}
/// The key head of query head h is h mod Hkv.
void heads_tiled_back(Call& c) {
  const std::int64_t groups = c.at("Hkv"), size = c.at("H") / groups;
  const auto from = [&](std::int64_t h) { return h % size * groups + h / size; };
  permute(c.input("q"), c.at("H"), c.at("d"), from);
  permute(c.input("d.o"), c.at("H"), c.at("dv"), from);
}
void queries_tiled_back(Call& c) {
  const std::int64_t groups = c.at("Hkv"), size = c.at("H") / groups;
  permute(c.output("d.q"), c.at("H"), c.at("d"),
          [&](std::int64_t h) { return h % groups * size + h / groups; });
}
/// The gradient `output` of a key head is that of the last head of its group.
CallFault last_of_group(std::string_view output) {
  return [output](const OperatorKernel& right, Call& c, const Contract& contract) {
    const Outcome outcome = right.run(c.call, contract);
    const std::int64_t H = c.at("H"), dv = c.at("dv"), size = H / c.at("Hkv");
    std::int64_t head = 0;
    each_row(c.input("d.o"), dv, [&](std::span<float> row) {
      if (head++ % size != size - 1) std::ranges::fill(row, 0.0F);
    });
    std::vector<std::vector<float>> kept;
    OperatorArguments other = c.call;
    for (NamedTensor<float>& x : other.outputs) {
      if (x.name == output) continue;
      kept.emplace_back(c.output(x.name).size() + 1);
      x.data = kept.back().data();
    }
    (void)right.run(other, contract);
    return outcome;
  };
}

/// The rows of q_proj of every head hold the gate first and the query second.
void gate_rows_first(Call& c) {
  const std::int64_t rows = c.at("d") * c.at("D");
  each_row(c.input("q_proj"), 2 * rows, [rows](std::span<float> w) { rotate(w, rows); });
}
void gate_rows_first_back(Call& c) {
  const std::int64_t rows = c.at("d") * c.at("D");
  each_row(c.output("d.q_proj"), 2 * rows, [rows](std::span<float> w) { rotate(w, rows); });
}
/// The gradients of the gate's rows are lost.
void gate_without_gradient(Call& c) {
  const std::int64_t rows = c.at("d") * c.at("D");
  each_row(c.output("d.q_proj"), 2 * rows,
           [rows](std::span<float> w) { std::fill(w.begin() + rows, w.end(), 0.0F); });
}
void weight_less_one_back(Call& c) {
  c.each("q_norm", [](float w) { return w - 1.0F; });
}
void norm_of_keys_for_queries(Call& c) { std::ranges::copy(c.input("k_norm"), c.input("q_norm").begin()); }
void gradients_of_norms_exchanged(Call& c) {
  std::ranges::swap_ranges(c.output("d.q_norm"), c.output("d.k_norm"));
}
void next_value_head(Call& c) {
  const std::int64_t Hkv = c.at("Hkv");
  permute(c.output("d.v_proj"), Hkv, c.at("d") * c.at("D"), [Hkv](std::int64_t h) { return (h + 1) % Hkv; });
}
/// d.q_norm is that of one head and not the sum over all.
void norm_of_one_head(Call& c) {
  for (float& x : c.output("d.q_norm")) x /= static_cast<float>(c.at("H"));
}
void next_row_of_hidden(Call& c) { rotate(c.output("d.hidden"), c.width("hidden")); }

/// Of a head's rows of kv_up, those of the value come first.
void values_first(Call& c) {
  const std::int64_t width = c.at("dc"), rows = c.at("dn") + c.at("dv");
  each_row(c.input("kv_up"), rows * width, [&](std::span<float> w) { rotate(w, c.at("dn") * width); });
}
void values_first_back(Call& c) {
  const std::int64_t width = c.at("dc"), rows = c.at("dn") + c.at("dv");
  each_row(c.output("d.kv_up"), rows * width, [&](std::span<float> w) { rotate(w, c.at("dv") * width); });
}
/// The gradient of the rotary key is that of one head, as if all were alike.
void rotary_key_of_one_head(Call& c) {
  if (c.at("dr") == 0) return;
  for (float& x : c.output("d.kr")) x /= static_cast<float>(c.at("H"));
}
void rotary_key_without_gradient(Call& c) {
  if (c.at("dr") > 0) std::ranges::fill(c.output("d.kr"), 0.0F);
}
void latent_of_the_next_token(Call& c) { rotate(c.output("d.c"), c.at("dc")); }
void angle_of_the_other_sign(Call& c) {
  if (c.at("dr") > 0) c.each("sin", [](float x) { return -x; });
}
void angle_of_the_token_before(Call& c) {
  if (c.at("dr") > 0) token_before({"cos", "sin"})(c);
}
void query_norm_and_one(Call& c) {
  if (c.at("q_lora") > 0) c.each("q_norm", [](float w) { return w + 1.0F; });
}
void query_norm_times_weight(Call& c) {
  if (c.at("q_lora") == 0) return;
  const std::span<float> w = c.input("q_norm"), dw = c.output("d.q_norm");
  for (std::size_t j = 0; j < w.size(); ++j) dw[j] *= w[j];
}
/// Scores have the scale of the columns that do not turn.
void scale_of_unturned_columns(Call& c) {
  const float key = static_cast<float>(c.at("dn") + c.at("dr"));
  c.each("q_up", [s = std::sqrt(key / static_cast<float>(c.at("dn")))](float x) { return x * s; });
}

}  // namespace

std::vector<Mutant> attention_gradient_mutants() {
  std::vector<Mutant> out;
  add_faults(
      out, "cpu.softmax_attention.backward.online",
      {{"F", "delta_lost", "d.o . o is not taken off", with_steps<DeltaLost>()},
       {"F", "delta_of_the_token_before", "d.o . o is that of the token before",
        with_steps<DeltaOfTheTokenBefore>()},
       {"F", "delta_in_bf16", "d.o . o is kept in bf16", with_steps<DeltaInBf16>()},
       {"F", "lse_in_bf16", "the log of the sums is kept in bf16", with_steps<LseInBf16>()},
       {"M90", "mask_off_by_one_back", "in reverse a query sees the key behind its own",
        with_steps<SeesOneMore>()},
       {"M90", "own_key_lost_back", "in reverse a query does not see its own key", with_steps<SeesOneLess>()},
       {"M90", "mask_off_by_one", "a query sees the next key and not the first", misread(next_keys)},
       {"F", "last_tile_lost", "keys behind the last whole tile get no gradient and give none",
        with_steps<LastTileLost>()},
       {"F", "tiles_overwrite_dq", "d.q is that of the last tile of keys", with_steps<TilesOverwrite>()},
       {"F", "not_transposed", "d.v = P d.o in square tiles", with_steps<NotTransposed>()},
       {"F", "dq_in_bf16", "d.q is added up in bf16 over tiles of keys", with_steps<QueriesInBf16>()},
       {"F", "dk_in_bf16", "d.k and d.v are added up in bf16 over blocks of queries",
        with_steps<KeysInBf16>()},
       {"M47", "scale_twice_in_dq", "d.q has the scale twice", miswritten(scaled("d.q", once_more))},
       {"M47", "scale_twice_in_dk", "d.k has the scale twice", miswritten(scaled("d.k", once_more))},
       {"M47", "scale_forgotten_in_dq", "d.q lacks the scale", miswritten(scaled("d.q", not_at_all))},
       {"M47", "scale_forgotten_in_dk", "d.k lacks the scale", miswritten(scaled("d.k", not_at_all))},
       {"M47", "no_scale_of_scores", "scores lack the scale", misread(no_scale_of_scores)},
       {"M31", "other_head_map_back", "key head of h as h mod Hkv",
        changed(heads_tiled_back, queries_tiled_back)},
       {"F", "dk_of_one_head", "d.k is that of one query head of the group", last_of_group("d.k")},
       {"F", "dv_of_one_head", "d.v is that of one query head of the group", last_of_group("d.v")}});
  std::vector<OperatorFault> of_layer{
      {"F", "gate_before_query", "of a head's rows the gate's come first",
       changed(gate_rows_first, gate_rows_first_back)},
      {"F", "gate_without_gradient", "d.q_proj of the rows of the gate is zero",
       miswritten(gate_without_gradient)},
      {"M52", "weight_without_one", "w where 1 + w is meant, of the query norm",
       misread(weight_less_one_back)},
      {"F", "norm_of_keys_for_queries", "queries have the weight of the key norm",
       misread(norm_of_keys_for_queries)},
      {"F", "gradients_of_norms_exchanged", "d.q_norm is d.k_norm and the reverse",
       miswritten(gradients_of_norms_exchanged)},
      {"F", "norm_of_one_head", "d.q_norm is the mean over the heads", miswritten(norm_of_one_head)},
      {"F", "position_off_by_one", "tables of the token before", misread(token_before({"cosine", "sine"}))},
      {"F", "turned_the_other_way", "the angle has the other sign",
       misread(mapped("sine", [](float x) { return -x; }))},
      {"F", "gradient_of_the_next_head", "d.v_proj of a key head is that of the next",
       miswritten(next_value_head)},
      {"F", "gradient_of_the_next_token", "d.hidden of a token is that of the next",
       miswritten(next_row_of_hidden)},
      {"F", "cotangent_ignored", "d.out counts as 1", misread(filled("d.out", 1.0F))}};
  for (OperatorFault& fault : faults_of_sums()) of_layer.push_back(std::move(fault));
  add_faults(out, "cpu.gated_attention.backward.online", of_layer);
  std::vector<OperatorFault> of_latent{
      {"F", "values_first", "of a head's rows of kv_up the value's come first",
       changed(values_first, values_first_back)},
      {"F", "rotary_key_of_one_head", "d.kr is the mean over the heads", miswritten(rotary_key_of_one_head)},
      {"F", "rotary_key_without_gradient", "d.kr is zero", miswritten(rotary_key_without_gradient)},
      {"F", "latent_of_the_next_token", "d.c of a token is that of the next",
       miswritten(latent_of_the_next_token)},
      {"F", "turned_the_other_way", "the angle has the other sign", misread(angle_of_the_other_sign)},
      {"F", "position_off_by_one", "tables of the token before", misread(angle_of_the_token_before)},
      {"F", "weight_plus_one", "1 + w where w is meant, of the query norm", misread(query_norm_and_one)},
      {"F", "gradient_times_weight", "d.q_norm has the weight as a factor",
       miswritten(query_norm_times_weight)},
      {"F", "scale_of_unturned_columns", "dn^-1/2 for (dn + dr)^-1/2", misread(scale_of_unturned_columns)},
      {"F", "cotangent_ignored", "d.y counts as 1", misread(filled("d.y", 1.0F))}};
  for (OperatorFault& fault : faults_of_sums()) of_latent.push_back(std::move(fault));
  add_faults(out, "cpu.latent_attention.backward.online", of_latent);
  return out;
}

}  // namespace samestate::mutants

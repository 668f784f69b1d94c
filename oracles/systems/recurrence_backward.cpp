#include <algorithm>

#include "oracles/systems/explicit_chunk.h"
#include "oracles/systems/family.h"
#include "oracles/systems/row_costs.h"
#include "oracles/systems/rows.h"
#include "reference/backward/chunk.h"
#include "reference/backward/heads.h"
#include "reference/backward/recurrence.h"
#include "reference/delta_rule.h"
#include "reference/gated_delta_rule.h"
#include "reference/linear_attention.h"
#include "reference/retention.h"

/// The backward passes of the recurrent family as systems of named tensors: the inputs of the forward call and
/// the cotangents of its outputs (`d.o`, `d.final_state`) come in, and the gradients of its inputs go out.
namespace samestate {
namespace {

/// The heads of a tensor [T, heads, width], each [T, width].
template <class Scalar>
std::vector<Matrix<Scalar>> heads_of(const Matrix<Scalar>& x, Index heads) {
  std::vector<Matrix<Scalar>> out;
  for (Index h = 0; h < heads; ++h) {
    Matrix<Scalar> one(x.rows() / heads, x.cols());
    for (Index t = 0; t < one.rows(); ++t) one.row(t) = x.row(t * heads + h);
    out.push_back(std::move(one));
  }
  return out;
}

template <class Scalar>
Matrix<Scalar> side_by_side(const std::vector<Matrix<Scalar>>& heads) {
  const Index count = std::ssize(heads);
  Matrix<Scalar> out(heads.front().rows() * count, heads.front().cols());
  for (Index h = 0; h < count; ++h) {
    for (Index t = 0; t < heads.front().rows(); ++t)
      out.row(t * count + h) = heads[static_cast<std::size_t>(h)].row(t);
  }
  return out;
}

template <class Scalar>
Matrix<Scalar> side_by_side(const std::vector<Vector<Scalar>>& heads) {
  std::vector<Matrix<Scalar>> columns;
  for (const Vector<Scalar>& head : heads) columns.emplace_back(head);
  return side_by_side(columns);
}

/// The states [dk, dv] of a tensor [heads, dk, dv].
template <class Scalar>
std::vector<Matrix<Scalar>> states_of(const Matrix<Scalar>& x, Index heads) {
  std::vector<Matrix<Scalar>> out;
  const Index dk = x.rows() / heads;
  for (Index h = 0; h < heads; ++h) out.push_back(x.middleRows(h * dk, dk));
  return out;
}

template <class Rule>
struct Gradients {
  static Signature signature(const Call& call) {
    const Index T = call.tokens;
    const Index Hk = call.at("Hk");
    const Index Hv = call.at("Hv");
    const Index dk = call.at("dk");
    const Index dv = call.at("dv");
    if (Hv % Hk != 0) throw Error("Hk=" + std::to_string(Hk) + ": must divide Hv=" + std::to_string(Hv));
    const auto given = static_cast<Cotangent>(call.at("cotangent"));
    Signature s;
    s.inputs = {{"q", Axis::tokens, {T, Hk, dk}, Content::key},
                {"k", Axis::tokens, {T, Hk, dk}, Content::key},
                {"v", Axis::tokens, {T, Hv, dv}, Content::activation}};
    s.outputs = {{"d.q", Axis::tokens, {T, Hk, dk}},
                 {"d.k", Axis::tokens, {T, Hk, dk}},
                 {"d.v", Axis::tokens, {T, Hv, dv}}};
    // A gate has a last extent of 1, so that each of its gradients is a row with a variance of its own.
    if (Rule::gated) {
      s.inputs.push_back({"g", Axis::tokens, {T, Hv, 1}, Content::log_decay});
      s.outputs.push_back({"d.g", Axis::tokens, {T, Hv, 1}, Content::log_decay});
    }
    if (Rule::delta) {
      s.inputs.push_back({"beta", Axis::tokens, {T, Hv, 1}, Content::strength});
      s.outputs.push_back({"d.beta", Axis::tokens, {T, Hv, 1}, Content::strength});
    }
    const Extents state{Hv, dk, dv};
    if (call.at("state") != 0) s.inputs.push_back({"initial_state", Axis::state, state, Content::offset});
    if (given != Cotangent::state)
      s.inputs.push_back({"d.o", Axis::tokens, {T, Hv, dv}, Content::activation});
    if (given != Cotangent::o) s.inputs.push_back({"d.final_state", Axis::state, state, Content::offset});
    if (call.at("state") != 0) s.outputs.push_back({"d.initial_state", Axis::state, state, Content::offset});
    return s;
  }

  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Index Hk = call.at("Hk");
    const Index Hv = call.at("Hv");
    const Index dk = call.at("dk");
    const Index dv = call.at("dv");
    const Index T = call.tokens;
    const auto gates = [&](bool there, std::string_view name, double absent) {
      std::vector<Vector<Scalar>> out;
      for (Index h = 0; h < Hv; ++h) {
        if (there) {
          out.push_back(heads_of(get(inputs, name), Hv)[static_cast<std::size_t>(h)].col(0));
        } else {
          out.push_back(Vector<Scalar>::Constant(T, Scalar(absent)));
        }
      }
      return out;
    };
    const auto states = [&](std::string_view name, const Matrix<Scalar>& absent) {
      return inputs.contains(name) ? states_of(get(inputs, name), Hv)
                                   : std::vector<Matrix<Scalar>>(static_cast<std::size_t>(Hv), absent);
    };
    const Heads<Scalar> x{heads_of(get(inputs, "q"), Hk),
                          heads_of(get(inputs, "k"), Hk),
                          heads_of(get(inputs, "v"), Hv),
                          gates(Rule::gated, "g", 0.0),
                          gates(Rule::delta, "beta", 1.0),
                          states("initial_state", Matrix<Scalar>::Zero(dk, dv)),
                          key_heads_of(Hk, Hv, call.at("tiled") != 0 ? HeadMap::tiled : HeadMap::interleaved),
                          Scalar(call.scale)};
    const std::vector<Matrix<Scalar>> d_o =
        inputs.contains("d.o")
            ? heads_of(get(inputs, "d.o"), Hv)
            : std::vector<Matrix<Scalar>>(static_cast<std::size_t>(Hv), Matrix<Scalar>::Zero(T, dv));
    const std::vector<Matrix<Scalar>> d_state = states("d.final_state", Matrix<Scalar>());
    std::vector<HeadCotangents<Scalar>> d;
    for (std::size_t h = 0; h < d_o.size(); ++h) d.push_back({d_o[h], d_state[h]});
    const HeadsGradients<Scalar> out = heads_backward(
        x, d,
        [&](const Sequence<Scalar>& head, const HeadCotangents<Scalar>& of) {
          return call.form == "chunked" ? chunked_backward_parts<Rule>(head, of, call.chunk)
                                        : recurrent_backward<Rule>(head, of);
        },
        call.at("l2norm") != 0);
    Tensors<Scalar> all{
        {"d.q", side_by_side(out.q)}, {"d.k", side_by_side(out.k)}, {"d.v", side_by_side(out.v)}};
    if (Rule::gated) all.emplace("d.g", side_by_side(out.g));
    if (Rule::delta) all.emplace("d.beta", side_by_side(out.beta));
    if (call.at("state") == 0) return all;
    Matrix<Scalar> state(Hv * dk, dv);
    for (Index h = 0; h < Hv; ++h)
      state.middleRows(h * dk, dk) = out.initial_state[static_cast<std::size_t>(h)];
    all.emplace("d.initial_state", std::move(state));
    return all;
  }
};

template <class Rule>
Operator gradients_of(std::string_view forward, std::string_view name, std::string_view equation) {
  Operator row{name,
               equation,
               {{"Hk", 1, 1, Index{1} << 24, "key heads"},
                {"Hv", 1, 1, Index{1} << 24, "value heads: each key head serves Hv/Hk of them", "Hk"},
                {"dk", 64, 1, Index{1} << 24, "width of keys"},
                {"dv", 64, 1, Index{1} << 24, "width of values"},
                {"tiled", 0, 0, 1, "1: value head h reads key head h mod Hk"},
                {"l2norm", 0, 0, 1, "1: q and k are normalised inside"},
                {"state", 0, 0, 1, "1: an initial state is given"},
                {"cotangent", 0, 0, 2, "which cotangents are given (Cotangent)"}},
               {{"recurrent"}, {"chunked", true}},
               false,
               Gradients<Rule>::signature};
  evaluate_with<Gradients<Rule>>(row);
  row.late_factors = kKeyLengthFactors;
  row.family = &family_named(forward);
  // Each token's products of the forward pass are made again, and each of them has two in its reverse.
  row.cost = [](const Call& call, const Signature&) {
    costs::RecurrenceConfig head;
    head.key_width = call.at("dk");
    head.value_width = call.at("dv");
    head.delta = Rule::delta;
    head.decay = Rule::gated;
    head.gates = (Rule::delta ? 1 : 0) + (Rule::gated ? 1 : 0);
    Cost cost = row_costs::recurrence(call, head, call.at("Hv"));
    cost.operations = costs::product({3, cost.operations});
    cost.chunk.operations = costs::product({3, cost.chunk.operations});
    return cost;
  };
  return row;
}

}  // namespace

std::vector<Operator> recurrence_backward_operators() {
  return {
      gradients_of<GatedDeltaRule>(
          "gated_delta_rule", "gated_delta_rule.backward",
          "D <- e^g (D + scale q do^T - k (beta (D + scale q do^T)^T k)^T) from the last "
          "token to the first, and from D the gradients of q, k, v, g, beta and the initial "
          "state"),
      gradients_of<DeltaRule>(
          "delta_rule", "delta_rule.backward",
          "D <- D + scale q do^T - k (beta (D + scale q do^T)^T k)^T from the last token to the "
          "first, and from D the gradients of q, k, v, beta and the initial state"),
      gradients_of<Retention>(
          "retention", "retention.backward",
          "D <- e^g (D + scale q do^T) from the last token to the first, and from D the gradients "
          "of q, k, v, g and the initial state"),
      gradients_of<LinearAttention>(
          "linear_attention", "linear_attention.backward",
          "D <- D + scale q do^T from the last token to the first, and from D the gradients "
          "of q, k, v and the initial state"),
  };
}

}  // namespace samestate

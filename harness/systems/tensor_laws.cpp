#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "harness/systems/tensor_comparison.h"

/// Laws of the systems of named tensors. Each compares runs of one kernel with each other, element by element
/// within the sum of their running errors (BOUNDS 10.2): what is wrong in both runs alike passes here, and not
/// against the oracle.
namespace samestate {
namespace {

using tensor_laws_detail::Change;
using tensor_laws_detail::Comparison;
using tensor_laws_detail::inapplicable;
using tensor_laws_detail::oracle_of;
using tensor_laws_detail::oracles_of;

/// The first tokens of a sequence, its middle and its end.
std::vector<Index> cuts_worth_trying(Index tokens, Index chunk) {
  const Index c = chunk > 0 ? chunk : 8;
  std::set<Index> cuts;
  for (const Index t : {Index{1}, c - 1, c, c + 1, tokens / 2, tokens - 1}) {
    if (t > 0 && t < tokens) cuts.insert(t);
  }
  return {cuts.begin(), cuts.end()};
}
// EQ-03, P-09: any cut with the states carried gives one pass.
Judgement split(const TensorSubject& s) {
  if (s.r.c.T < 2) return inapplicable("fewer than two tokens");
  Comparison comparison(s.trace);
  const std::vector<Tensors<double>> one = s.run(s.inputs, {});
  const std::vector<OperatorOracle> wholes = oracles_of(s, s.inputs, {});
  for (const Index cut : cuts_worth_trying(s.r.c.T, s.r.chunk)) {
    const std::vector<Tensors<double>> two = s.run(s.inputs, {cut});
    comparison.begin(Change::calls, "all tokens in one call",
                     fmt::format("cut before token {}, the states carried", cut), cut);
    for (Index b = 0; b < s.r.c.B; ++b) {
      const OperatorOracle parts = oracle_of(s, s.inputs, b, {cut});
      const auto at = static_cast<std::size_t>(b);
      const OperatorOracle& whole = wholes[at];
      for (const auto& [name, tolerance] : whole.tolerance)
        comparison.add(b, name, tolerance.rows(), {one[at], whole}, {two[at], parts});
    }
  }
  return comparison.take("all tokens in one call, and cut in two with the state carried");
}

// P-07: outputs before t do not depend on tokens from t on.
Judgement causality(const TensorSubject& s) {
  if (s.r.c.T < 2) return inapplicable("fewer than two tokens");
  Comparison comparison(s.trace);
  const Signature signature = s.system.signature(s.r.c);
  const std::vector<Tensors<double>> before = s.run(s.inputs, {});
  const std::vector<OperatorOracle> of_before = oracles_of(s, s.inputs, {});
  bool effect = false;
  for (const Index t : cuts_worth_trying(s.r.c.T, s.r.chunk)) {
    std::vector<CaseTensor> changed = s.inputs;
    std::vector<std::string> names;
    for (CaseTensor& x : changed) {
      if (x.spec.axis != Axis::tokens && x.spec.axis != Axis::prefix) continue;
      if (x.spec.content != Content::activation && x.spec.content != Content::features) continue;
      names.push_back(x.spec.name);
      const Index each = x.spec.size() / s.r.c.T;
      for (Index b = 0; b < s.r.c.B; ++b) {
        for (Index i = t * each; i < s.r.c.T * each; ++i) {
          float& value = x.data[static_cast<std::size_t>(b * x.spec.size() + i)];
          // Halving keeps every format; the sign stays where a feature map must be positive.
          value *= x.spec.content == Content::features ? 0.5F : -0.5F;
        }
      }
    }
    const std::vector<Tensors<double>> after = s.run(changed, {});
    comparison.begin(Change::future, "the tokens as they are",
                     fmt::format("{} of the tokens from {} on halved, signs turned where they may be",
                                 fmt::join(names, ", "), t),
                     t);
    for (Index b = 0; b < s.r.c.B; ++b) {
      const OperatorOracle of_after = oracle_of(s, changed, b, {});
      const auto at = static_cast<std::size_t>(b);
      for (const TensorSpec& spec : signature.outputs) {
        const Matrix<double>& x = get(before[at], spec.name);
        const Matrix<double>& y = get(after[at], spec.name);
        effect = effect || x != y;
        if (spec.axis != Axis::tokens) continue;
        comparison.add(b, spec.name, t * (x.rows() / s.r.c.T), {before[at], of_before[at]},
                       {after[at], of_after});
      }
    }
  }
  Judgement j = comparison.take("the tokens as they are, and with later ones changed");
  if (!effect && j.verdict == Verdict::pass) {
    j.verdict = Verdict::vacuous;
    j.reason = "the changed future changed nothing at all";
  }
  return j;
}

// P-08: rows of a batch do not meet.
Judgement batch_permutation(const TensorSubject& s) {
  const Index B = s.r.c.B;
  if (B < 2) return inapplicable("B=1: nothing to permute");
  std::vector<CaseTensor> turned = s.inputs;
  for (std::size_t i = 0; i < turned.size(); ++i) {
    if (!turned[i].batched) continue;
    const auto size = static_cast<std::ptrdiff_t>(turned[i].spec.size());
    for (Index b = 0; b < B; ++b)
      std::copy_n(s.inputs[i].data.begin() + (B - 1 - b) * size, size, turned[i].data.begin() + b * size);
  }
  const std::vector<Tensors<double>> one = s.run(s.inputs, {});
  const std::vector<Tensors<double>> other = s.run(turned, {});
  Comparison comparison(s.trace);
  comparison.begin(Change::order, "the rows of the batch in their order", "in reverse order");
  for (Index b = 0; b < B; ++b) {
    const OperatorOracle oracle = oracle_of(s, s.inputs, b, {});
    for (const auto& [name, tolerance] : oracle.tolerance) {
      comparison.add(b, name, tolerance.rows(), {one[static_cast<std::size_t>(b)], oracle},
                     {other[static_cast<std::size_t>(B - 1 - b)], oracle});
    }
  }
  return comparison.take("a batch, and its rows in reverse order");
}

bool streams(const Operator& row) { return row.streams; }

Signature signature_of_one_token(const Operator& row) {
  Call call;
  call.form = row.forms.front().name;
  call.tokens = 1;
  for (const Parameter& p : row.parameters) call.parameters.emplace(p.name, p.standard);
  return row.signature(call);
}

/// Whether a call reads what earlier ones left: a state, or the keys and values of a cache.
bool carries(const Operator& row) {
  const Signature signature = signature_of_one_token(row);
  return row.streams &&
         std::any_of(signature.inputs.begin(), signature.inputs.end(),
                     [](const TensorSpec& x) { return x.axis == Axis::state || x.axis == Axis::prefix; });
}

/// Whether a request's state lies in a slot of a pool.
bool has_slots(const Operator& row) {
  const Signature signature = signature_of_one_token(row);
  return std::any_of(signature.inputs.begin(), signature.inputs.end(),
                     [](const TensorSpec& x) { return x.content == Content::slot; });
}

constexpr TensorLaw kLaws[] = {
    {{"split", "EQ-03 P-09", "cut anywhere, carry the states, resume = one pass"}, streams, split},
    {{"causality", "P-07", "outputs before t do not depend on tokens from t on"}, streams, causality},
    {{"batch_permutation", "P-08", "rows of a batch do not meet"},
     [](const Operator&) { return true; },
     batch_permutation},
    {{"reset", "M25 M26", "a request from a reset state or cache does not know of the one before it"},
     carries,
     tensor_laws_detail::reset},
    {{"serving", "EQ-03 P-09 M24 M25 M26 M28 M29",
      "requests in slots, decoded, advanced, forked and restarted in any order = each alone"},
     carries,
     tensor_laws_detail::serving},
    {{"pool", "M25 M29",
      "rows of a pool that are not the slot's stay bit for bit, and are not read; another slot = the same"},
     has_slots,
     tensor_laws_detail::pool},
    {{"packing", "M27 M37", "sequences of different lengths end to end = each alone"},
     [](const Operator& row) { return row.token_wise; },
     tensor_laws_detail::packing},
};

}  // namespace

std::span<const TensorLaw> tensor_laws() { return kLaws; }

}  // namespace samestate

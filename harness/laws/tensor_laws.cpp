#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "harness/laws/tensor_comparison.h"

/// Laws of the systems of named tensors. Each compares runs of one kernel with each other, element by
/// element, within the sum of their running errors (BOUNDS 10.2): an error common to both runs passes here,
/// but not against the oracle.
namespace samestate::tensor_laws_detail {

std::vector<Index> cuts_worth_trying(Index tokens, Index chunk) {
  const Index c = chunk > 0 ? chunk : 8;
  std::set<Index> cuts;
  for (const Index t : {Index{1}, c - 1, c, c + 1, tokens / 2, tokens - 1}) {
    if (t > 0 && t < tokens) cuts.insert(t);
  }
  return {cuts.begin(), cuts.end()};
}

Judgement split(const TensorSubject& s) {
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

Judgement causality(const TensorSubject& s) {
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
          // Halving is exact in every format; the sign is kept where a feature map must be positive.
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
  return if_effective(comparison.take("the tokens as they are, and with later ones changed"), effect,
                      kFutureIdle);
}

Judgement batch_permutation(const TensorSubject& s) {
  const Index B = s.r.c.B;
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

}  // namespace samestate::tensor_laws_detail

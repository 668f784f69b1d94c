#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "harness/laws/tensor_comparison.h"
#include "oracles/systems/family.h"

/// Laws of gradients about single tokens: one that does nothing, and one that forgets.
namespace samestate::tensor_laws_detail {
namespace {

/// e to it is 0 in fp32. A sum of g keeps the digits of the others beside it.
constexpr float kForgets = -150.0F;

/// True for tensors of a token that is to have no effect: nothing is written, nothing decays, nobody reads.
bool idle_is_zero(const Family& family, std::string_view name) {
  if (name == "d.o" || name == "g" || name == "beta") return true;
  return !family.delta && (name == "k" || name == "v");
}

/// The inputs with such a token before each of `places`; whatever of it has no effect is as in the token behind it.
std::vector<CaseTensor> with_idle_tokens(const TensorSubject& s, const std::vector<Index>& places) {
  const Case& c = s.r.c;
  std::vector<CaseTensor> out = s.inputs;
  for (CaseTensor& x : out) {
    if (x.spec.axis != Axis::tokens) continue;
    const Index each = x.spec.size() / c.T;
    const bool zero = idle_is_zero(*s.system.row.family, x.spec.name);
    std::vector<float> data;
    for (Index b = 0; b < c.B; ++b) {
      for (Index t = 0; t < c.T; ++t) {
        const auto row = x.data.begin() + (b * c.T + t) * each;
        if (std::ranges::binary_search(places, t)) {
          data.insert(data.end(), row, row + each);
          if (zero) std::fill(data.end() - each, data.end(), 0.0F);
        }
        data.insert(data.end(), row, row + each);
      }
    }
    x.data = std::move(data);
    x.spec.shape.front() = x.shape[1] = c.T + std::ssize(places);
  }
  return out;
}

/// The tokens `tokens` of a gradient whose tokens have `each` rows.
Matrix<double> tokens_at(const Matrix<double>& x, Index each, const std::vector<Index>& tokens) {
  std::vector<Index> rows;
  for (const Index t : tokens) {
    for (Index i = 0; i < each; ++i) rows.push_back(t * each + i);
  }
  return x(rows, Eigen::all);
}

Tensors<double> tokens_at(const Tensors<double>& all, Index count, const std::vector<Index>& tokens) {
  Tensors<double> out;
  for (const auto& [name, x] : all)
    out.emplace(name, name == "d.initial_state" ? x : tokens_at(x, x.rows() / count, tokens));
  return out;
}

/// A gradient of one value a head and token, [tokens * heads, 1], as [heads, tokens].
Matrix<double> by_head_of(const Matrix<double>& x, Index heads) {
  return Eigen::Map<const Matrix<double>>(x.data(), x.rows() / heads, heads).transpose();
}

/// Tensors of a side that hold such a gradient alone.
struct ByHead {
  Tensors<double> values;
  OperatorOracle oracle;

  ByHead(const std::string& name, Index heads, const Tensors<double>& of, const OperatorOracle& by) {
    const auto only = [&](const Tensors<double>& all) {
      return Tensors<double>{{name + " by head", by_head_of(get(all, name), heads)}};
    };
    values = only(of);
    oracle.points = by.points;
    oracle.exact = only(by.exact);
    oracle.tolerance = only(by.tolerance);
  }
  [[nodiscard]] Side side() const { return {values, oracle}; }
  [[nodiscard]] const std::string& name() const { return values.begin()->first; }
};

/// Bounds for values that must be equal; one that is not known at all stays so.
Matrix<double> without_tolerance(const Matrix<double>& bounds) {
  return bounds.unaryExpr([](double x) { return std::isfinite(x) ? 0.0 : x; });
}

/// Where the tokens of a sequence lie in a longer one with others before `places`, and where the others lie.
struct Places {
  std::vector<Index> kept, added;

  Places(Index tokens, const std::vector<Index>& places) {
    for (Index t = 0; t < tokens; ++t) {
      if (std::ranges::binary_search(places, t)) added.push_back(t + std::ssize(added));
      kept.push_back(t + std::ssize(added));
    }
  }
};

}  // namespace

Judgement backward_no_op(const TensorSubject& s) {
  const Case& c = s.r.c;
  std::vector<Index> places = cuts_worth_trying(c.T, s.r.chunk);
  places.insert(places.begin(), 0);
  const Places at(c.T, places);
  const Index count = c.T + std::ssize(places);
  const Resolved longer = changed(s.r, count, false, c.cotangent);
  const std::vector<CaseTensor> inputs = with_idle_tokens(s, places);
  const std::vector<Tensors<double>> one = s.run(s.inputs, {}), two = s.run_as(longer, inputs, {});
  std::vector<Index> behind;
  for (const Index t : at.added) behind.push_back(t + 1);
  Comparison comparison(s.trace);
  for (Index b = 0; b < c.B; ++b) {
    const auto of_b = static_cast<std::size_t>(b);
    const OperatorOracle alone = oracle_of(s, s.inputs, b, {}), with = oracle_as(s, longer, inputs, b);
    const auto part = [&](const std::vector<Index>& tokens) {
      OperatorOracle of_part;
      of_part.points = with.points;
      of_part.axes = with.axes;
      of_part.exact = tokens_at(with.exact, count, tokens);
      of_part.tolerance = tokens_at(with.tolerance, count, tokens);
      return std::pair(tokens_at(two[of_b], count, tokens), std::move(of_part));
    };
    const auto [kept, of_kept] = part(at.kept);
    const auto [added, of_added] = part(at.added);
    const auto [next, of_next] = part(behind);
    comparison.begin(Change::cotangents, "the tokens alone",
                     fmt::format("the same with a no-op token before each of {}", fmt::join(places, ", ")));
    for (const auto& [name, x] : one[of_b]) {
      if (name != "d.initial_state" && x.cols() == 1) {
        const ByHead first(name, c.Hv, one[of_b], alone), second(name, c.Hv, kept, of_kept);
        comparison.add_by_head(b, first.name(), first.side(), second.side());
      } else {
        comparison.add(b, name, x.rows(), {one[of_b], alone}, {kept, of_kept});
      }
    }
    comparison.begin(Change::cotangents, "zero, and the gradient of g of the token behind it",
                     "the gradients of each no-op token");
    for (const char* name : {"d.q", "d.k", "d.v"}) {
      const std::string own = std::string(name) + " of the no-op tokens";
      const Matrix<double>& x = get(added, name);
      const Tensors<double> zero{{own, Matrix<double>::Zero(x.rows(), x.cols())}}, given{{own, x}};
      OperatorOracle demanded, of_own;
      demanded.exact = demanded.tolerance = zero;
      of_own.points = with.points;
      of_own.exact = {{own, get(of_added.exact, name)}};
      of_own.tolerance = {{own, get(of_added.tolerance, name)}};
      comparison.add(b, own, x.rows(), {zero, demanded}, {given, of_own});
    }
    if (!added.contains("d.g")) continue;
    const ByHead first("d.g", c.Hv, next, of_next), second("d.g", c.Hv, added, of_added);
    comparison.add_by_head(b, first.name(), first.side(), second.side());
  }
  return comparison.take("the tokens alone, and with tokens between them that do nothing");
}

Judgement backward_reset(const TensorSubject& s) {
  const Case& c = s.r.c;
  Comparison comparison(s.trace);
  bool effect = false;
  const auto turned = [](float& x) { x *= -0.5F; };
  for (const Index t : cuts_worth_trying(c.T, s.r.chunk)) {
    std::vector<CaseTensor> one = s.inputs;
    CaseTensor& g = *named(one, "g");
    for (Index b = 0; b < c.B; ++b) std::fill_n(g.data.begin() + (b * c.T + t) * c.Hv, c.Hv, kForgets);
    std::vector<CaseTensor> other = one;
    if (CaseTensor* d_state = named(other, "d.final_state"); d_state != nullptr)
      std::ranges::for_each(d_state->data, turned);
    if (CaseTensor* d_o = named(other, "d.o"); d_o != nullptr) {
      const Index each = d_o->spec.size() / c.T;
      for (Index b = 0; b < c.B; ++b) {
        const auto row = d_o->data.begin() + b * c.T * each;
        std::for_each(row + t * each, row + c.T * each, turned);
      }
    }
    const std::vector<Tensors<double>> before = s.run(one, {}), after = s.run(other, {});
    comparison.begin(Change::cotangents, fmt::format("alpha = 0 at token {}", t),
                     "the same with all cotangents from that token on halved, with their signs turned", t);
    for (Index b = 0; b < c.B; ++b) {
      const auto at = static_cast<std::size_t>(b);
      const OperatorOracle of_before = oracle_of(s, one, b, {}), of_after = oracle_of(s, other, b, {});
      const auto bits = [&](OperatorOracle oracle) {
        if (!s.deterministic) return oracle;
        for (auto& [name, x] : oracle.tolerance) x = without_tolerance(x);
        return oracle;
      };
      const OperatorOracle first = bits(of_before), second = bits(of_after);
      for (const auto& [name, x] : before[at]) {
        effect = effect || x != get(after[at], name);
        if (name == "d.g") continue;
        const Index rows = name == "d.initial_state" ? x.rows() : t * (x.rows() / c.T);
        comparison.add(b, name, rows, {before[at], first}, {after[at], second});
      }
      // In chunks, d.g of the tokens before a reset is a sum over what cancels behind it.
      const bool exact = s.r.unchunked();
      ByHead x("d.g", c.Hv, before[at], exact ? first : of_before);
      ByHead y("d.g", c.Hv, after[at], exact ? second : of_after);
      for (Tensors<double>* all : {&y.values, &y.oracle.exact, &y.oracle.tolerance})
        all->begin()->second.col(t).setZero();
      // The tokens behind the reset are made equal: they only show how large the gradients of a head are.
      const Index rest = c.T - t - 1;
      y.values.begin()->second.rightCols(rest) = x.values.begin()->second.rightCols(rest);
      y.oracle.exact.begin()->second.rightCols(rest) = x.oracle.exact.begin()->second.rightCols(rest);
      for (ByHead* side : {&x, &y}) {
        auto bounds = side->oracle.tolerance.begin()->second.rightCols(rest);
        bounds = without_tolerance(bounds);
      }
      comparison.add_by_head(b, x.name(), x.side(), y.side());
    }
  }
  return if_effective(
      comparison.take("gradients before a token that forgets, and the same with other cotangents behind it"),
      effect, "the changed cotangents changed nothing at all");
}

}  // namespace samestate::tensor_laws_detail

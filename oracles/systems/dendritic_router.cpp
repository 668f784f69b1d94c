#include "reference/dendritic_router.h"

#include <limits>

#include "oracles/systems/rows.h"

namespace samestate {
namespace {

template <class Scalar>
[[nodiscard]] bool decided(const DendriticRouting<Scalar>&, Index, Index) {
  return true;
}

/// Whether no error within the bounds turns the choice of token t: every chosen branch's probability is above
/// every other one's by more than their errors (EQUATIONS 8.2). Logits that are equal and free of error
/// (those of a zero query) tie in any arithmetic that treats the branches alike, and the rule decides.
[[nodiscard]] bool decided(const DendriticRouting<Running>& r, Index t, Index shared) {
  for (Index i = 0; i < r.probabilities.cols(); ++i) {
    if (!r.mask(t, shared + i)) continue;
    for (Index j = 0; j < r.probabilities.cols(); ++j) {
      if (r.mask(t, shared + j)) continue;
      const Running& a = r.logits(t, i);
      const Running& b = r.logits(t, j);
      if (a.error() == 0.0 && b.error() == 0.0 && a == b) continue;
      const Running& p = r.probabilities(t, i);
      const Running& q = r.probabilities(t, j);
      if (!(p.value() - q.value() > p.error() + q.error())) return false;
    }
  }
  return true;
}

template <class Scalar>
[[nodiscard]] Scalar unknown(const Scalar& x) {
  return x;
}
[[nodiscard]] Running unknown(const Running& x) {
  return Running::undecided(x, std::numeric_limits<double>::infinity());
}

struct Router {
  static BranchCounts counts_of(const Call& call) {
    const BranchCounts n{call.at("Es") + call.at("K") + call.at("idle"), call.at("Es"), call.at("K")};
    require_branch_counts(n);
    return n;
  }
  static Signature signature(const Call& call) {
    const BranchCounts n = counts_of(call);
    const Index H = call.at("H");
    const Index d = call.at("d");
    return {{{"q", Axis::tokens, {call.tokens, H * d}, Content::activation},
             {"router", Axis::whole, {n.candidates(), d}, Content::weight}},
            {{"omega", Axis::tokens, {call.tokens, H * n.branches}},
             {"mask", Axis::tokens, {call.tokens, H * n.branches}}}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const BranchCounts n = counts_of(call);
    const Index d = call.at("d");
    Matrix<Scalar> omega(call.tokens, call.at("H") * n.branches);
    Matrix<Scalar> mask(call.tokens, call.at("H") * n.branches);
    for (Index h = 0; h < call.at("H"); ++h) {
      const Matrix<Scalar> q = get(inputs, "q").middleCols(h * d, d);
      const DendriticRouting<Scalar> r = route_branches(q, get(inputs, "router"), n);
      for (Index t = 0; t < call.tokens; ++t) {
        const bool known = decided(r, t, n.shared);
        for (Index e = 0; e < n.branches; ++e) {
          const Scalar used(r.mask(t, e) ? 1.0 : 0.0);
          omega(t, h * n.branches + e) = known ? r.weights(t, e) : unknown(r.weights(t, e));
          mask(t, h * n.branches + e) = known ? used : unknown(used);
        }
      }
    }
    return {{"omega", std::move(omega)}, {"mask", std::move(mask)}};
  }
};

}  // namespace

std::vector<Operator> dendritic_router_operators() {
  Operator row{"dendritic_router",
               "K of the branches by softmax(W q), Es always; weights renormalised (EQUATIONS 7.3, 2-4)",
               {{"H", 2, 1, 64, "heads"},
                {"d", 16, 1, 512, "width of a head"},
                {"Es", 1, 0, 16, "shared branches"},
                {"K", 2, 0, 16, "branches chosen"},
                {"idle", 3, 0, 64, "branches left over"}},
               {{"softmax"}, {"chosen"}},
               false,
               Router::signature};
  evaluate_with<Router>(row);
  row.token_wise = true;
  return {std::move(row)};
}

}  // namespace samestate

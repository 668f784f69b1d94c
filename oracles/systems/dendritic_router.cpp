#include "reference/dendritic_router.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "oracles/systems/instances.h"
#include "oracles/systems/rows.h"
#include "oracles/systems/scalars.h"

namespace samestate {
namespace {

template <class Scalar>
[[nodiscard]] bool decided(const DendriticRouting<Scalar>&, Index, Index) {
  return true;
}

[[nodiscard]] bool ties(const DendriticRouting<Running>& r, Index t, Index i, Index j) {
  const Running& a = r.logits(t, i);
  const Running& b = r.logits(t, j);
  return a.error() == 0.0 && b.error() == 0.0 && a == b;
}

/// True if candidate i is above j, whatever their errors.
[[nodiscard]] bool above(const DendriticRouting<Running>& r, Index t, Index i, Index j) {
  const Running& p = r.probabilities(t, i);
  const Running& q = r.probabilities(t, j);
  return p.value() - q.value() > p.error() + q.error();
}

/// True if no error within the bounds changes the choice of token t: every chosen branch's probability is
/// above that of every other by more than their errors (EQUATIONS 8.2). Logits that are equal and free of
/// error (those of a zero query) tie in any arithmetic that treats the branches alike, and the tie rule
/// decides.
[[nodiscard]] bool decided(const DendriticRouting<Running>& r, Index t, Index shared) {
  for (Index i = 0; i < r.probabilities.cols(); ++i) {
    if (!r.mask(t, shared + i)) continue;
    for (Index j = 0; j < r.probabilities.cols(); ++j) {
      if (!r.mask(t, shared + j) && !ties(r, t, i, j) && !above(r, t, i, j)) return false;
    }
  }
  return true;
}

/// True if a correct kernel may choose exactly the candidates that are `taken`, by the same criterion.
[[nodiscard]] bool allows(const DendriticRouting<Running>& r, Index t, const std::vector<bool>& taken) {
  for (Index i = 0; i < r.probabilities.cols(); ++i) {
    for (Index j = 0; j < r.probabilities.cols(); ++j) {
      if (!taken[static_cast<std::size_t>(i)] || taken[static_cast<std::size_t>(j)]) continue;
      if (ties(r, t, i, j) ? j < i : above(r, t, j, i)) return false;
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
      const DendriticRouting<Scalar> r = routed(call, h, q, get(inputs, "router"), n);
      for (Index t = 0; t < call.tokens; ++t) {
        const bool known = is_chosen(call, t, h) || decided(r, t, n.shared);
        for (Index e = 0; e < n.branches; ++e) {
          const Scalar used(r.mask(t, e) ? 1.0 : 0.0);
          omega(t, h * n.branches + e) = known ? r.weights(t, e) : unknown(r.weights(t, e));
          mask(t, h * n.branches + e) = known ? used : unknown(used);
        }
      }
    }
    return {{"omega", std::move(omega)}, {"mask", std::move(mask)}};
  }

  /// K columns for each head, read from the kernel's mask.
  static Matrix<Index> choice(const Call& call, const Tensors<double>& inputs,
                              const Tensors<double>& actual) {
    const BranchCounts n = counts_of(call);
    const Index d = call.at("d");
    Matrix<Index> chosen = Matrix<Index>::Constant(call.tokens, call.at("H") * n.routed, -1);
    const Matrix<Running> q = as<Running>(get(inputs, "q"));
    const Matrix<Running> router = as<Running>(get(inputs, "router"));
    for (Index h = 0; h < call.at("H"); ++h) {
      const DendriticRouting<Running> r = route_branches<Running>(q.middleCols(h * d, d), router, n);
      for (Index t = 0; t < call.tokens; ++t) {
        if (decided(r, t, n.shared)) continue;
        const auto mask = get(actual, "mask").row(t).segment(h * n.branches + n.shared, n.candidates());
        std::vector<bool> taken(static_cast<std::size_t>(n.candidates()), false);
        std::vector<Index> candidates;
        for (Index i = 0; i < n.candidates(); ++i) {
          if (mask(i) != 1.0) continue;
          taken[static_cast<std::size_t>(i)] = true;
          candidates.push_back(i);
        }
        if (std::ssize(candidates) != n.routed || !allows(r, t, taken)) continue;
        std::ranges::stable_sort(candidates, std::greater<>(),
                                 [&](Index i) { return r.probabilities(t, i).value(); });
        for (Index i = 0; i < n.routed; ++i)
          chosen(t, h * n.routed + i) = candidates[static_cast<std::size_t>(i)];
      }
    }
    return chosen;
  }

 private:
  static bool is_chosen(const Call& call, Index t, Index h) {
    return call.choice != nullptr && call.at("K") > 0 && (*call.choice)(t, h * call.at("K")) >= 0;
  }

  /// The routing of one head, with the choice of the call instead of its own.
  template <class Scalar>
  static DendriticRouting<Scalar> routed(const Call& call, Index h, const Matrix<Scalar>& q,
                                         const Matrix<Scalar>& router, const BranchCounts& n) {
    DendriticRouting<Scalar> own = route_branches(q, router, n);
    if (call.choice == nullptr) return own;
    Matrix<Index> selected = own.selected;
    Matrix<Scalar> chosen(q.rows(), n.routed);
    for (Index t = 0; t < q.rows(); ++t) {
      if (is_chosen(call, t, h)) selected.row(t) = call.choice->row(t).segment(h * n.routed, n.routed);
      for (Index i = 0; i < n.routed; ++i) chosen(t, i) = own.probabilities(t, selected(t, i));
    }
    DendriticRouting<Scalar> out = injected_routing(selected, chosen, n);
    out.logits = std::move(own.logits);
    out.probabilities = std::move(own.probabilities);
    return out;
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
  row.choice = Router::choice;
  row.token_wise = true;
  return {std::move(row)};
}

}  // namespace samestate

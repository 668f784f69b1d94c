#include "oracles/systems/family.h"

#include <array>
#include <string>
#include <vector>

#include "oracles/systems/rows.h"
#include "reference/delta_rule.h"
#include "reference/error.h"
#include "reference/gated_delta_rule.h"
#include "reference/linear_attention.h"
#include "reference/retention.h"
#include "reference/scalars.h"

namespace samestate {
namespace {

/// Largest |x - y| over y in the interval, rounded up to double.
double distance(const Interval& enclosure, double x) {
  const Interval difference = abs(enclosure - Interval(x));
  return static_cast<double>(upper(difference)) * (1 + 0x1p-50);
}

template <class System>
Family::Certificate certify(const Sequence<double>& x, const Trajectory<double>& float64) {
  const Trajectory<Interval> exact = recurrent<System>(x.cast<Interval>());
  Family::Certificate out{Vector<double>::Zero(x.tokens()), 0.0};
  for (Index t = 0; t < x.tokens(); ++t) {
    double sum = 0;
    for (Index c = 0; c < x.value_width(); ++c) {
      const double d = distance(exact.o(t, c), float64.o(t, c));
      sum += d * d;
    }
    out.o(t) = std::sqrt(sum);
  }
  double sum = 0;
  for (Index i = 0; i < exact.state.size(); ++i) {
    const double d = distance(exact.state.data()[i], float64.state.data()[i]);
    sum += d * d;
  }
  out.state = std::sqrt(sum);
  return out;
}

template <class System>
Family row(std::string_view name, std::string_view equation) {
  return {name,
          equation,
          System::gated,
          System::delta,
          &recurrent<System, double>,
          &chunked<System, double>,
          &certify<System>};
}

const std::array kFamilies = {
    row<GatedDeltaRule>("gated_delta_rule", "S <- e^g S; S <- S + k (beta (v - S^T k))^T; o = scale S^T q"),
    row<DeltaRule>("delta_rule", "S <- S + k (beta (v - S^T k))^T; o = scale S^T q"),
    row<Retention>("retention", "S <- e^g S + k v^T; o = scale S^T q"),
    row<LinearAttention>("linear_attention", "S <- S + k v^T; o = scale S^T q"),
};

constexpr std::string_view kGatedDeltaRuleText = R"py(def reference(q, k, v, g, beta, S, scale):
    """S <- e^g S; S <- S + k (beta (v - S^T k))^T; o = scale S^T q"""
    o = np.empty_like(v)
    for t in range(len(q)):
        S = np.exp(g[t]) * S
        S = S + np.outer(k[t], beta[t] * (v[t] - S.T @ k[t]))
        o[t] = scale * (S.T @ q[t])
    return o, S
)py";

constexpr std::string_view kDeltaRuleText = R"py(def reference(q, k, v, g, beta, S, scale):
    """S <- S + k (beta (v - S^T k))^T; o = scale S^T q"""
    o = np.empty_like(v)
    for t in range(len(q)):
        S = S + np.outer(k[t], beta[t] * (v[t] - S.T @ k[t]))
        o[t] = scale * (S.T @ q[t])
    return o, S
)py";

constexpr std::string_view kRetentionText = R"py(def reference(q, k, v, g, beta, S, scale):
    """S <- e^g S + k v^T; o = scale S^T q"""
    o = np.empty_like(v)
    for t in range(len(q)):
        S = np.exp(g[t]) * S + np.outer(k[t], v[t])
        o[t] = scale * (S.T @ q[t])
    return o, S
)py";

constexpr std::string_view kLinearAttentionText = R"py(def reference(q, k, v, g, beta, S, scale):
    """S <- S + k v^T; o = scale S^T q"""
    o = np.empty_like(v)
    for t in range(len(q)):
        S = S + np.outer(k[t], v[t])
        o[t] = scale * (S.T @ q[t])
    return o, S
)py";

}  // namespace

std::span<const Family> families() { return kFamilies; }

const Family& family_named(std::string_view name) {
  std::string known;
  for (const Family& family : kFamilies) {
    if (family.name == name) return family;
    known += (known.empty() ? "" : ", ") + std::string(family.name);
  }
  throw Error("system " + std::string(name) + ": no such system; known: " + known);
}

std::vector<NumpyText> family_numpy() {
  return {{"gated_delta_rule", kGatedDeltaRuleText},
          {"delta_rule", kDeltaRuleText},
          {"retention", kRetentionText},
          {"linear_attention", kLinearAttentionText}};
}

}  // namespace samestate

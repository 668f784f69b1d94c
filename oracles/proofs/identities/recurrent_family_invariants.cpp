#include <cmath>

#include "oracles/proofs/identities/groups.h"
#include "oracles/proofs/identities/recurrent_draw.h"
#include "reference/gated_delta_rule.h"
#include "reference/scalars.h"

namespace samestate::recurrent_family_invariants {
namespace {

using identity_draws::difference;
using identity_draws::draw_head;
using identity_draws::kKeyWidth;
using identity_draws::kTokens;
using identity_draws::kValueWidth;

/// Outputs before token 17 under a changed future, by `run`.
template <class Scalar, class Run>
double causality(std::uint64_t seed, const Run& run) {
  const Index before = 17;
  const Sequence<Scalar> x = draw_head<Scalar>(seed);
  const Sequence<Scalar> other = draw_head<Scalar>(seed + 1);
  Sequence<Scalar> changed = x;
  const Index after = kTokens - before;
  changed.q.bottomRows(after) = other.q.bottomRows(after);
  changed.k.bottomRows(after) = other.k.bottomRows(after);
  changed.v.bottomRows(after) = other.v.bottomRows(after);
  changed.g.tail(after) = other.g.tail(after);
  changed.beta.tail(after) = other.beta.tail(after);
  return relative_difference(Matrix<Scalar>(run(changed).o.topRows(before)),
                             Matrix<Scalar>(run(x).o.topRows(before)));
}

template <class Scalar>
Scalar length(const Matrix<Scalar>& x) {
  using std::sqrt;
  return sqrt(Scalar(x.squaredNorm()));
}

/// (a - b) / b where a exceeds b, else 0.
template <class Scalar>
double excess(const Scalar& a, const Scalar& b) {
  return a > b ? static_cast<double>(Scalar((a - b) / b)) : 0.0;
}

/// |S|_2 from below: Rayleigh's quotient at a power of S S^T so high that the largest direction is alone.
template <class Scalar>
Scalar spectral_norm(const Matrix<Scalar>& S) {
  using std::sqrt;
  const Matrix<Scalar> gram = S * S.transpose();
  Matrix<Scalar> power = gram;
  for (int doubling = 0; doubling < 10; ++doubling) {
    power /= Scalar(power.trace());
    power = Matrix<Scalar>(power * power);
  }
  const Scalar quotient = Matrix<Scalar>(gram * power).trace() / power.trace();
  return sqrt(quotient);
}

/// At beta = 1, g = 0: k^T S_t = |k|^2 v + (1 - |k|^2) k^T S_{t-1}, keys of any length `factor`.
template <class Scalar>
double recall(std::uint64_t seed, double factor) {
  Sequence<Scalar> x = draw_head<Scalar>(seed).slice(0, 1, draw_head<Scalar>(seed).initial_state);
  x.k *= Scalar(factor);
  x.g.setZero();
  x.beta.setOnes();
  const Scalar n = x.k.squaredNorm();
  const Matrix<Scalar> recalled = x.k * recurrent<GatedDeltaRule>(x).state;
  const Matrix<Scalar> expected = n * x.v + Scalar(Scalar(1) - n) * (x.k * x.initial_state);
  return relative_difference(recalled, expected);
}

}  // namespace

std::vector<Identity> rows() {
  using enum Expectation;
  constexpr std::string_view kGated = "gated_delta_rule";
  return {
      {"P-04", "gdn_masked_token", kGated, "k = beta = g = 0 keeps S, q = 0 reads 0 (P-04, P-05 of the core)",
       exact,
       []<class Scalar>(std::uint64_t seed) {
         Sequence<Scalar> x = draw_head<Scalar>(seed);
         x.k.setZero();
         x.q.setZero();
         x.beta.setZero();
         x.g.setZero();
         const Trajectory<Scalar> y = recurrent<GatedDeltaRule>(x);
         return std::max(
             relative_difference(y.state, x.initial_state),
             relative_difference(y.o, Matrix<Scalar>(Matrix<Scalar>::Zero(kTokens, kValueWidth))));
       }},
      {"P-07", "gdn_causal_recurrent", kGated, "outputs before t do not see x from t on, recurrence", exact,
       []<class Scalar>(std::uint64_t seed) {
         return causality<Scalar>(seed,
                                  [](const Sequence<Scalar>& x) { return recurrent<GatedDeltaRule>(x); });
       }},
      {"P-07", "gdn_causal_chunked", kGated, "outputs before t do not see x from t on, t inside a chunk",
       exact,
       []<class Scalar>(std::uint64_t seed) {
         return causality<Scalar>(seed,
                                  [](const Sequence<Scalar>& x) { return chunked<GatedDeltaRule>(x, 8); });
       }},
      {"P-08", "gdn_packed_rows", kGated,
       "sequences end to end = each by itself, in any order, one of them empty", exact,
       []<class Scalar>(std::uint64_t seed) {
         const Sequence<Scalar> x = draw_head<Scalar>(seed);
         const std::vector<Index> offsets{0, 9, 9, 20, kTokens};
         std::vector<Matrix<Scalar>> states;
         IdentityDraw<Scalar> draw(seed + 7);
         for (int n = 0; n < 4; ++n) states.push_back(draw.normal(kKeyWidth, kValueWidth));
         const auto run = [](const Sequence<Scalar>& part) { return chunked<GatedDeltaRule>(part, 8); };
         const std::vector<Trajectory<Scalar>> all = packed(x, offsets, states, run);
         double worst = 0.0;
         for (const std::size_t n : {std::size_t{3}, std::size_t{1}, std::size_t{0}, std::size_t{2}}) {
           worst = std::max(worst, difference(run(x.slice(offsets[n], offsets[n + 1], states[n])), all[n]));
         }
         return worst;
       }},
      {"P-16", "gdn_state_growth", kGated, "|S_t|_F <= a |S_(t-1)|_F + b |v_t| for |k| <= 1", holds,
       []<class Scalar>(std::uint64_t seed) {
         using std::exp;
         const Sequence<Scalar> x = draw_head<Scalar>(seed);
         Matrix<Scalar> S = x.initial_state;
         double worst = 0.0;
         for (Index t = 0; t < kTokens; ++t) {
           const Matrix<Scalar> after = recurrent<GatedDeltaRule>(x.slice(t, t + 1, S)).state;
           const Scalar limit = Scalar(exp(x.g(t))) * length(S) + x.beta(t) * length<Scalar>(x.v.row(t));
           worst = std::max(worst, excess(length(after), limit));
           S = after;
         }
         return worst;
       }},
      {"P-17", "gdn_read_length", kGated, "|o_t| <= scale |S_t|_2 for |q| <= 1", holds,
       []<class Scalar>(std::uint64_t seed) {
         const Sequence<Scalar> x = draw_head<Scalar>(seed);
         Matrix<Scalar> S = x.initial_state;
         double worst = 0.0;
         for (Index t = 0; t < kTokens; ++t) {
           const Trajectory<Scalar> y = recurrent<GatedDeltaRule>(x.slice(t, t + 1, S));
           worst = std::max(worst, excess(length(y.o), Scalar(x.scale * spectral_norm(y.state))));
           S = y.state;
         }
         return worst;
       }},
      {"P-18", "gdn_linear", kGated, "linear in (v, S_0) at fixed q, k, g, beta", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Sequence<Scalar> x = draw_head<Scalar>(seed);
         IdentityDraw<Scalar> draw(seed + 3);
         Sequence<Scalar> y = x;
         y.v = draw.normal(kTokens, kValueWidth);
         y.initial_state = draw.normal(kKeyWidth, kValueWidth);
         const Scalar a(0.75);
         const Scalar b(-1.5);
         Sequence<Scalar> sum = x;
         sum.v = a * x.v + b * y.v;
         sum.initial_state = a * x.initial_state + b * y.initial_state;
         const Trajectory<Scalar> fx = chunked<GatedDeltaRule>(x, 8);
         const Trajectory<Scalar> fy = chunked<GatedDeltaRule>(y, 8);
         const Trajectory<Scalar> expected{a * fx.o + b * fy.o, a * fx.delta + b * fy.delta,
                                           a * fx.state + b * fy.state};
         return difference(recurrent<GatedDeltaRule>(sum), expected);
       }},
      {"P-19", "gdn_recall", kGated,
       "beta = 1, g = 0: k^T S_t = |k|^2 v + (1 - |k|^2) k^T S_(t-1), normalised k", equal,
       []<class Scalar>(std::uint64_t seed) { return recall<Scalar>(seed, 1.0); }},
      {"P-19", "gdn_recall_long_key", kGated,
       "the same for |k| = 1.5: what was written is overshot (DELTA-6)", equal,
       []<class Scalar>(std::uint64_t seed) { return recall<Scalar>(seed, 1.5); }},
  };
}

}  // namespace samestate::recurrent_family_invariants

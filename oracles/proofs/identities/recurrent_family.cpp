#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "oracles/proofs/identities/groups.h"
#include "oracles/proofs/identities/recurrent_draw.h"
#include "reference/delta_rule.h"
#include "reference/gated_delta_rule.h"
#include "reference/linear_attention.h"
#include "reference/retention.h"
#include "reference/scalars.h"

namespace samestate {
namespace {

using identity_draws::difference;
using identity_draws::draw_head;
using identity_draws::kKeyWidth;
using identity_draws::kTokens;
using identity_draws::kValueWidth;

template <class Scalar>
double column_form(std::uint64_t seed) {
  const Sequence<Scalar> x = draw_head<Scalar>(seed);
  return difference(gated_delta_rule_column(x), recurrent<GatedDeltaRule>(x));
}

template <class Scalar>
double expanded_form(std::uint64_t seed) {
  const Sequence<Scalar> x = draw_head<Scalar>(seed);
  return difference(gated_delta_rule_expanded(x), recurrent<GatedDeltaRule>(x));
}

template <class Scalar>
double scan_form(std::uint64_t seed) {
  const Sequence<Scalar> x = draw_head<Scalar>(seed);
  return difference(gated_delta_rule_scan(x), recurrent<GatedDeltaRule>(x));
}

/// The maps of two neighbours composed the wrong way round.
template <class Scalar>
double scan_order(std::uint64_t seed) {
  const Sequence<Scalar> x = draw_head<Scalar>(seed);
  const AffineMap<Scalar> first = gated_delta_rule_map(x, 0);
  const AffineMap<Scalar> second = gated_delta_rule_map(x, 1);
  return relative_difference(then(second, first).A, then(first, second).A);
}

/// Chunks of every size of EQ-02 and EQ-07 against the recurrence.
template <class System, class Scalar>
double chunks(std::uint64_t seed) {
  const Sequence<Scalar> x = draw_head<Scalar>(seed);
  const Trajectory<Scalar> whole = recurrent<System>(x);
  double worst = 0.0;
  for (const Index chunk : {1, 4, 5, 8, 16, 64}) {
    worst = std::max(worst, difference(chunked<System>(x, chunk), whole));
  }
  return worst;
}

/// Recurrent up to the cut, in chunks after it, at every cut.
template <class System, class Scalar>
double prefill_then_chunks(std::uint64_t seed) {
  const Sequence<Scalar> x = draw_head<Scalar>(seed);
  const Trajectory<Scalar> whole = recurrent<System>(x);
  double worst = 0.0;
  for (Index cut = 0; cut <= kTokens; cut += 6) {
    bool first = true;
    const auto run = [&first](const Sequence<Scalar>& part) {
      return std::exchange(first, false) ? recurrent<System>(part) : chunked<System>(part, 8);
    };
    worst = std::max(worst, difference(resumed(x, {cut}, run), whole));
  }
  return worst;
}

template <class System, class Scalar>
double token_decode(std::uint64_t seed) {
  const Sequence<Scalar> x = draw_head<Scalar>(seed);
  return difference(decode<System>(x), recurrent<System>(x));
}

/// Chunks before the cut, decode after it.
template <class System, class Scalar>
double chunks_then_decode(std::uint64_t seed) {
  const Sequence<Scalar> x = draw_head<Scalar>(seed);
  bool first = true;
  const auto run = [&first](const Sequence<Scalar>& part) {
    return std::exchange(first, false) ? chunked<System>(part, 8) : decode<System>(part);
  };
  return difference(resumed(x, {21}, run), recurrent<System>(x));
}

template <class Scalar>
double retention_mask(std::uint64_t seed) {
  const Sequence<Scalar> x = draw_head<Scalar>(seed, true);
  return relative_difference(retention_parallel(x), recurrent<Retention>(x).o);
}

template <class Scalar>
double retention_constant(std::uint64_t seed) {
  Sequence<Scalar> x = draw_head<Scalar>(seed, true);
  x.g.setConstant(retention_log_decay<Scalar>(1));
  return relative_difference(retention_parallel_constant(x, Scalar(1.0 - 0x1p-6)), recurrent<Retention>(x).o);
}

/// The mask whose row is the key (RET-3, index order).
template <class Scalar>
double transposed_mask(std::uint64_t seed) {
  const Sequence<Scalar> x = draw_head<Scalar>(seed, true);
  const Matrix<Scalar> QK = x.q * x.k.transpose();
  const Matrix<Scalar> gamma = decay_between(x.g).transpose();
  return relative_difference(Matrix<Scalar>(x.scale * (QK.cwiseProduct(gamma) * x.v)),
                             recurrent<Retention>(x).o);
}

/// The mask whose product begins at j: the own step decayed.
template <class Scalar>
double own_step_decayed(std::uint64_t seed) {
  const Sequence<Scalar> x = draw_head<Scalar>(seed, true);
  const Matrix<Scalar> QK = x.q * x.k.transpose();
  const Vector<Scalar> step = x.g.unaryExpr([](const Scalar& g) {
    using std::exp;
    return Scalar(exp(g));
  });
  const Matrix<Scalar> gamma = decay_between(x.g) * step.asDiagonal();
  return relative_difference(Matrix<Scalar>(x.scale * (QK.cwiseProduct(gamma) * x.v)),
                             recurrent<Retention>(x).o);
}

template <class Scalar>
double causal_parallel(std::uint64_t seed) {
  const Sequence<Scalar> x = draw_head<Scalar>(seed, true);
  return relative_difference(linear_attention_parallel(x), recurrent<LinearAttention>(x).o);
}

template <class Scalar>
double reassociated(std::uint64_t seed) {
  const Sequence<Scalar> x = draw_head<Scalar>(seed, true);
  return relative_difference(linear_attention_bidirectional_state_first(x),
                             linear_attention_bidirectional_scores_first(x));
}

template <class Scalar>
double reassociated_against_causal(std::uint64_t seed) {
  const Sequence<Scalar> x = draw_head<Scalar>(seed, true);
  return relative_difference(linear_attention_bidirectional_state_first(x), linear_attention_parallel(x));
}

// ---- special cases that join the classes of EQUATIONS 4

/// No decay: the gated rule is the delta rule.
template <class Scalar>
double without_decay(std::uint64_t seed) {
  Sequence<Scalar> x = draw_head<Scalar>(seed);
  x.g.setZero();
  return difference(recurrent<GatedDeltaRule>(x), recurrent<DeltaRule>(x));
}

/// One key direction a token: on orthogonal keys nothing is to be removed, and the delta rule writes beta v.
template <class Scalar>
double orthogonal_keys(std::uint64_t seed) {
  Sequence<Scalar> x =
      draw_head<Scalar>(seed, true).slice(0, kKeyWidth, Matrix<Scalar>::Zero(kKeyWidth, kValueWidth));
  x.k = Matrix<Scalar>::Identity(kKeyWidth, kKeyWidth);
  Sequence<Scalar> written = x;
  written.v = x.beta.asDiagonal() * x.v;
  return difference(recurrent<GatedDeltaRule>(x), recurrent<Retention>(written));
}

/// Retention with decay 1 is linear attention.
template <class Scalar>
double retention_without_decay(std::uint64_t seed) {
  Sequence<Scalar> x = draw_head<Scalar>(seed);
  x.g.setZero();
  return difference(recurrent<Retention>(x), recurrent<LinearAttention>(x));
}

// ---- mistakes that must show

/// S <- e^g S + beta k v^T under the name of the delta rule (E-01).
template <class Scalar>
double no_delta_term(std::uint64_t seed) {
  const Sequence<Scalar> x = draw_head<Scalar>(seed);
  Sequence<Scalar> printed = x;
  printed.v = x.beta.asDiagonal() * x.v;
  return relative_difference(recurrent<Retention>(printed).state, recurrent<GatedDeltaRule>(x).state);
}

/// S <- g S: the log-decay taken for the multiplier (E-02).
template <class Scalar>
double log_decay_as_multiplier(std::uint64_t seed) {
  const Sequence<Scalar> x = draw_head<Scalar>(seed);
  Matrix<Scalar> S = x.initial_state;
  for (Index t = 0; t < kTokens; ++t) {
    S *= x.g(t);
    const Matrix<Scalar> u = x.beta(t) * (x.v.row(t) - x.k.row(t) * S);
    S += x.k.row(t).transpose() * u;
  }
  return relative_difference(S, recurrent<GatedDeltaRule>(x).state);
}

/// The state read before the write (against GDN-39).
template <class Scalar>
double read_before_write(std::uint64_t seed) {
  const Sequence<Scalar> x = draw_head<Scalar>(seed);
  Matrix<Scalar> o(kTokens, kValueWidth);
  Matrix<Scalar> S = x.initial_state;
  for (Index t = 0; t < kTokens; ++t) {
    o.row(t) = x.scale * (x.q.row(t) * S);
    S = recurrent<GatedDeltaRule>(x.slice(t, t + 1, S)).state;
  }
  return relative_difference(o, recurrent<GatedDeltaRule>(x).o);
}

/// The prediction taken from the state before its decay (against GDN-36).
template <class Scalar>
double prediction_before_decay(std::uint64_t seed) {
  using std::exp;
  const Sequence<Scalar> x = draw_head<Scalar>(seed);
  Matrix<Scalar> S = x.initial_state;
  for (Index t = 0; t < kTokens; ++t) {
    const Matrix<Scalar> u = x.beta(t) * (x.v.row(t) - x.k.row(t) * S);
    S *= Scalar(exp(x.g(t)));
    S += x.k.row(t).transpose() * u;
  }
  return relative_difference(S, recurrent<GatedDeltaRule>(x).state);
}

}  // namespace

std::vector<Identity> recurrent_family_identities() {
  using enum Expectation;
  constexpr std::string_view gdn = "gated_delta_rule";
  constexpr std::string_view delta = "delta_rule";
  constexpr std::string_view ret = "retention";
  constexpr std::string_view la = "linear_attention";
  std::vector<Identity> rows{
      {"EQ-01", "gdn_column_form", gdn,
       "row recurrence = column recurrence S a (I - b k k^T) + b v k^T (GDN-49)", equal, &column_form<double>,
       &column_form<Decimal50>},
      {"EQ-01", "gdn_expanded_form", gdn, "row recurrence = expanded a S + b (v - a S k) k^T (GDN-50)", equal,
       &expanded_form<double>, &expanded_form<Decimal50>},
      {"EQ-02", "gdn_chunked", gdn, "recurrence = chunks in WY form of 1, 4, 5, 8, 16, 64 at T = 37", equal,
       &chunks<GatedDeltaRule, double>, &chunks<GatedDeltaRule, Decimal50>},
      {"EQ-02", "delta_rule_chunked", delta, "recurrence = the same chunks without decay", equal,
       &chunks<DeltaRule, double>, &chunks<DeltaRule, Decimal50>},
      {"EQ-03", "gdn_prefill_then_chunks", gdn, "one pass = recurrence up to any cut, chunks after it", equal,
       &prefill_then_chunks<GatedDeltaRule, double>, &prefill_then_chunks<GatedDeltaRule, Decimal50>},
      {"EQ-03", "gdn_chunks_then_decode", gdn, "one pass = chunks up to a cut, token by token after it",
       equal, &chunks_then_decode<GatedDeltaRule, double>, &chunks_then_decode<GatedDeltaRule, Decimal50>},
      {"EQ-03", "delta_rule_prefill_then_chunks", delta, "one pass = recurrence, then chunks", equal,
       &prefill_then_chunks<DeltaRule, double>, &prefill_then_chunks<DeltaRule, Decimal50>},
      {"EQ-03", "retention_prefill_then_chunks", ret, "one pass = recurrence, then chunks", equal,
       &prefill_then_chunks<Retention, double>, &prefill_then_chunks<Retention, Decimal50>},
      {"EQ-03", "linear_attention_prefill_then_chunks", la, "one pass = recurrence, then chunks", equal,
       &prefill_then_chunks<LinearAttention, double>, &prefill_then_chunks<LinearAttention, Decimal50>},
      {"EQ-04", "gdn_scan", gdn, "recurrence = parallel scan of the maps S -> A S + B, A = a (I - b k k^T)",
       equal, &scan_form<double>, &scan_form<Decimal50>},
      {"EQ-07", "retention_mask", ret,
       "recurrence = (Q K^T o Gamma) V, Gamma of varying decays (RET-2, RET-3)", equal,
       &retention_mask<double>, &retention_mask<Decimal50>},
      {"EQ-07", "retention_constant_mask", ret,
       "recurrence = (Q K^T o gamma^(i-j)) V, powers of 1 - 2^-6 (RET-1)", equal, &retention_constant<double>,
       &retention_constant<Decimal50>},
      {"EQ-07", "retention_chunked", ret, "recurrence = chunks of 1, 4, 5, 8, 16, 64", equal,
       &chunks<Retention, double>, &chunks<Retention, Decimal50>},
      {"EQ-09", "linear_attention_parallel", la, "recurrence = tril(Q K^T) V (LA-2, LA-3)", equal,
       &causal_parallel<double>, &causal_parallel<Decimal50>},
      {"EQ-09", "linear_attention_chunked", la, "recurrence = chunks of 1, 4, 5, 8, 16, 64", equal,
       &chunks<LinearAttention, double>, &chunks<LinearAttention, Decimal50>},
      {"EQ-10", "linear_attention_reassociated", la, "without a mask (Q K^T) V = Q (K^T V) (LA-1)", equal,
       &reassociated<double>, &reassociated<Decimal50>},
      {"C-GDN", "gdn_without_decay", gdn, "g = 0: gated delta rule = delta rule", exact,
       &without_decay<double>, &without_decay<Decimal50>},
      {"C-GLA", "gdn_on_orthogonal_keys", gdn,
       "orthogonal keys from a zero state: gated delta rule = retention of beta v", equal,
       &orthogonal_keys<double>, &orthogonal_keys<Decimal50>},
      {"C-GLA", "retention_without_decay", ret, "g = 0: retention = linear attention", exact,
       &retention_without_decay<double>, &retention_without_decay<Decimal50>},
      {"P-09", "gdn_decode", gdn, "one pass = token by token with the state carried", exact,
       &token_decode<GatedDeltaRule, double>, &token_decode<GatedDeltaRule, Decimal50>},
      {"P-09", "delta_rule_decode", delta, "one pass = token by token with the state carried", exact,
       &token_decode<DeltaRule, double>, &token_decode<DeltaRule, Decimal50>},
      {"P-09", "retention_decode", ret, "one pass = token by token with the state carried", exact,
       &token_decode<Retention, double>, &token_decode<Retention, Decimal50>},
      {"P-09", "linear_attention_decode", la, "one pass = token by token with the state carried", exact,
       &token_decode<LinearAttention, double>, &token_decode<LinearAttention, Decimal50>},
      {"NC-no-delta-term", "gdn_no_delta_term", gdn, "a S + b k v^T under the name delta rule (E-01, GDN-17)",
       differs, &no_delta_term<double>, &no_delta_term<Decimal50>},
      {"NC-log-decay-as-multiplier", "gdn_log_decay_as_multiplier", gdn, "S <- g S in place of e^g S (E-02)",
       differs, &log_decay_as_multiplier<double>, &log_decay_as_multiplier<Decimal50>},
      {"NC-scan-order", "gdn_scan_order", gdn, "two maps composed in the wrong order (EQ-04)", differs,
       &scan_order<double>, &scan_order<Decimal50>},
      {"NC-read-before-write", "gdn_read_before_write", gdn, "o_t from the state before token t (GDN-39)",
       differs, &read_before_write<double>, &read_before_write<Decimal50>},
      {"NC-prediction-before-decay", "gdn_prediction_before_decay", gdn,
       "v - S^T k with the state not yet decayed (GDN-36)", differs, &prediction_before_decay<double>,
       &prediction_before_decay<Decimal50>},
      {"NC-transposed-mask", "retention_transposed_mask", ret, "Gamma^T in place of Gamma (RET-3)", differs,
       &transposed_mask<double>, &transposed_mask<Decimal50>},
      {"NC-own-step-decayed", "retention_own_step_decayed", ret,
       "Gamma's product from j in place of j + 1 (RET-3)", differs, &own_step_decayed<double>,
       &own_step_decayed<Decimal50>},
      {"NC-causal-reassociation", "linear_attention_causal_reassociation", la,
       "Q (K^T V) in place of the causal form (E-12, LA-1)", differs, &reassociated_against_causal<double>,
       &reassociated_against_causal<Decimal50>},
  };
  const std::vector<Identity> invariants = recurrent_family_invariants();
  rows.insert(rows.end(), invariants.begin(), invariants.end());
  return rows;
}

}  // namespace samestate

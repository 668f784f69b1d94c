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
#include "reference/sequence_parallel.h"

namespace samestate::recurrent_family_identities {
namespace {

using identity_draws::difference;
using identity_draws::draw_head;
using identity_draws::kKeyWidth;
using identity_draws::kTokens;
using identity_draws::kValueWidth;

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

/// Ranks of every kind: one, even, empty and of one token, a token each.
template <class System, class Scalar>
double over_ranks(std::uint64_t seed) {
  const Sequence<Scalar> x = draw_head<Scalar>(seed);
  const Trajectory<Scalar> whole = recurrent<System>(x);
  std::vector<Index> each;
  for (Index t = 0; t <= kTokens; ++t) each.push_back(t);
  double worst = 0.0;
  for (const std::vector<Index>& cuts :
       {std::vector<Index>{0, kTokens}, {0, 16, 32, kTokens}, {0, 0, 5, 5, 6, kTokens, kTokens}, each}) {
    worst = std::max(worst, difference(sequence_parallel<System>(x, cuts), whole));
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

}  // namespace

std::vector<Identity> rows() {
  using enum Expectation;
  constexpr std::string_view kGated = "gated_delta_rule";
  constexpr std::string_view kDelta = "delta_rule";
  constexpr std::string_view kRetention = "retention";
  constexpr std::string_view kLinear = "linear_attention";
  std::vector<Identity> rows{
      {"EQ-01", "gdn_column_form", kGated,
       "row recurrence = column recurrence S a (I - b k k^T) + b v k^T (GDN-49)", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Sequence<Scalar> x = draw_head<Scalar>(seed);
         return difference(gated_delta_rule_column(x), recurrent<GatedDeltaRule>(x));
       }},
      {"EQ-01", "gdn_expanded_form", kGated, "row recurrence = expanded a S + b (v - a S k) k^T (GDN-50)",
       equal,
       []<class Scalar>(std::uint64_t seed) {
         const Sequence<Scalar> x = draw_head<Scalar>(seed);
         return difference(gated_delta_rule_expanded(x), recurrent<GatedDeltaRule>(x));
       }},
      {"EQ-02", "gdn_chunked", kGated, "recurrence = chunks in WY form of 1, 4, 5, 8, 16, 64 at T = 37",
       equal, []<class Scalar>(std::uint64_t seed) { return chunks<GatedDeltaRule, Scalar>(seed); }},
      {"EQ-02", "delta_rule_chunked", kDelta, "recurrence = the same chunks without decay", equal,
       []<class Scalar>(std::uint64_t seed) { return chunks<DeltaRule, Scalar>(seed); }},
      {"EQ-03", "gdn_prefill_then_chunks", kGated, "one pass = recurrence up to any cut, chunks after it",
       equal,
       []<class Scalar>(std::uint64_t seed) { return prefill_then_chunks<GatedDeltaRule, Scalar>(seed); }},
      {"EQ-03", "gdn_chunks_then_decode", kGated, "one pass = chunks up to a cut, token by token after it",
       equal,
       []<class Scalar>(std::uint64_t seed) { return chunks_then_decode<GatedDeltaRule, Scalar>(seed); }},
      {"EQ-03", "delta_rule_prefill_then_chunks", kDelta, "one pass = recurrence, then chunks", equal,
       []<class Scalar>(std::uint64_t seed) { return prefill_then_chunks<DeltaRule, Scalar>(seed); }},
      {"EQ-03", "retention_prefill_then_chunks", kRetention, "one pass = recurrence, then chunks", equal,
       []<class Scalar>(std::uint64_t seed) { return prefill_then_chunks<Retention, Scalar>(seed); }},
      {"EQ-03", "linear_attention_prefill_then_chunks", kLinear, "one pass = recurrence, then chunks", equal,
       []<class Scalar>(std::uint64_t seed) { return prefill_then_chunks<LinearAttention, Scalar>(seed); }},
      {"EQ-04", "gdn_scan", kGated,
       "recurrence = parallel scan of the maps S -> A S + B, A = a (I - b k k^T)", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Sequence<Scalar> x = draw_head<Scalar>(seed);
         return difference(gated_delta_rule_scan(x), recurrent<GatedDeltaRule>(x));
       }},
      {"EQ-04", "gdn_over_ranks", kGated,
       "recurrence = parts of tokens as maps, composed in order, at any cuts", equal,
       []<class Scalar>(std::uint64_t seed) { return over_ranks<GatedDeltaRule, Scalar>(seed); }},
      {"EQ-04", "delta_rule_over_ranks", kDelta,
       "recurrence = parts of tokens as maps, composed in order, at any cuts", equal,
       []<class Scalar>(std::uint64_t seed) { return over_ranks<DeltaRule, Scalar>(seed); }},
      {"EQ-04", "retention_over_ranks", kRetention,
       "recurrence = parts of tokens as maps, composed in order, at any cuts", equal,
       []<class Scalar>(std::uint64_t seed) { return over_ranks<Retention, Scalar>(seed); }},
      {"EQ-04", "linear_attention_over_ranks", kLinear,
       "recurrence = parts of tokens as maps, composed in order, at any cuts", equal,
       []<class Scalar>(std::uint64_t seed) { return over_ranks<LinearAttention, Scalar>(seed); }},
      {"EQ-07", "retention_mask", kRetention,
       "recurrence = (Q K^T o Gamma) V, Gamma of varying decays (RET-2, RET-3)", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Sequence<Scalar> x = draw_head<Scalar>(seed, true);
         return relative_difference(retention_parallel(x), recurrent<Retention>(x).o);
       }},
      {"EQ-07", "retention_constant_mask", kRetention,
       "recurrence = (Q K^T o gamma^(i-j)) V, powers of 1 - 2^-6 (RET-1)", equal,
       []<class Scalar>(std::uint64_t seed) {
         Sequence<Scalar> x = draw_head<Scalar>(seed, true);
         x.g.setConstant(retention_log_decay<Scalar>(1));
         return relative_difference(retention_parallel_constant(x, Scalar(1.0 - 0x1p-6)),
                                    recurrent<Retention>(x).o);
       }},
      {"EQ-07", "retention_chunked", kRetention, "recurrence = chunks of 1, 4, 5, 8, 16, 64", equal,
       []<class Scalar>(std::uint64_t seed) { return chunks<Retention, Scalar>(seed); }},
      {"EQ-09", "linear_attention_parallel", kLinear, "recurrence = tril(Q K^T) V (LA-2, LA-3)", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Sequence<Scalar> x = draw_head<Scalar>(seed, true);
         return relative_difference(linear_attention_parallel(x), recurrent<LinearAttention>(x).o);
       }},
      {"EQ-09", "linear_attention_chunked", kLinear, "recurrence = chunks of 1, 4, 5, 8, 16, 64", equal,
       []<class Scalar>(std::uint64_t seed) { return chunks<LinearAttention, Scalar>(seed); }},
      {"EQ-10", "linear_attention_reassociated", kLinear, "without a mask (Q K^T) V = Q (K^T V) (LA-1)",
       equal,
       []<class Scalar>(std::uint64_t seed) {
         const Sequence<Scalar> x = draw_head<Scalar>(seed, true);
         return relative_difference(linear_attention_bidirectional_state_first(x),
                                    linear_attention_bidirectional_scores_first(x));
       }},
      {"C-GDN", "gdn_without_decay", kGated, "g = 0: gated delta rule = delta rule", exact,
       []<class Scalar>(std::uint64_t seed) {
         Sequence<Scalar> x = draw_head<Scalar>(seed);
         x.g.setZero();
         return difference(recurrent<GatedDeltaRule>(x), recurrent<DeltaRule>(x));
       }},
      // One key direction a token: on orthogonal keys nothing is to be removed, and the delta rule writes beta v.
      {"C-GLA", "gdn_on_orthogonal_keys", kGated,
       "orthogonal keys from a zero state: gated delta rule = retention of beta v", equal,
       []<class Scalar>(std::uint64_t seed) {
         Sequence<Scalar> x =
             draw_head<Scalar>(seed, true).slice(0, kKeyWidth, Matrix<Scalar>::Zero(kKeyWidth, kValueWidth));
         x.k = Matrix<Scalar>::Identity(kKeyWidth, kKeyWidth);
         Sequence<Scalar> written = x;
         written.v = x.beta.asDiagonal() * x.v;
         return difference(recurrent<GatedDeltaRule>(x), recurrent<Retention>(written));
       }},
      {"C-GLA", "retention_without_decay", kRetention, "g = 0: retention = linear attention", exact,
       []<class Scalar>(std::uint64_t seed) {
         Sequence<Scalar> x = draw_head<Scalar>(seed);
         x.g.setZero();
         return difference(recurrent<Retention>(x), recurrent<LinearAttention>(x));
       }},
      {"P-09", "gdn_decode", kGated, "one pass = token by token with the state carried", exact,
       []<class Scalar>(std::uint64_t seed) { return token_decode<GatedDeltaRule, Scalar>(seed); }},
      {"P-09", "delta_rule_decode", kDelta, "one pass = token by token with the state carried", exact,
       []<class Scalar>(std::uint64_t seed) { return token_decode<DeltaRule, Scalar>(seed); }},
      {"P-09", "retention_decode", kRetention, "one pass = token by token with the state carried", exact,
       []<class Scalar>(std::uint64_t seed) { return token_decode<Retention, Scalar>(seed); }},
      {"P-09", "linear_attention_decode", kLinear, "one pass = token by token with the state carried", exact,
       []<class Scalar>(std::uint64_t seed) { return token_decode<LinearAttention, Scalar>(seed); }},

      // ---- mistakes that must show

      {"NC-no-delta-term", "gdn_no_delta_term", kGated,
       "a S + b k v^T under the name delta rule (E-01, GDN-17)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Sequence<Scalar> x = draw_head<Scalar>(seed);
         Sequence<Scalar> printed = x;
         printed.v = x.beta.asDiagonal() * x.v;
         return relative_difference(recurrent<Retention>(printed).state, recurrent<GatedDeltaRule>(x).state);
       }},
      {"NC-log-decay-as-multiplier", "gdn_log_decay_as_multiplier", kGated,
       "S <- g S in place of e^g S (E-02)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Sequence<Scalar> x = draw_head<Scalar>(seed);
         Matrix<Scalar> S = x.initial_state;
         for (Index t = 0; t < kTokens; ++t) {
           S *= x.g(t);
           const Matrix<Scalar> u = x.beta(t) * (x.v.row(t) - x.k.row(t) * S);
           S += x.k.row(t).transpose() * u;
         }
         return relative_difference(S, recurrent<GatedDeltaRule>(x).state);
       }},
      {"NC-scan-order", "gdn_scan_order", kGated, "two maps composed in the wrong order (EQ-04)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Sequence<Scalar> x = draw_head<Scalar>(seed);
         const AffineMap<Scalar> first = gated_delta_rule_map(x, 0);
         const AffineMap<Scalar> second = gated_delta_rule_map(x, 1);
         return relative_difference(then(second, first).A, then(first, second).A);
       }},
      {"NC-decay-of-a-part-twice", "gdn_decay_of_a_part_twice", kGated,
       "a rank's outputs from the state behind its part's decay (EQ-04)", differs,
       []<class Scalar>(std::uint64_t seed) {
         using std::exp;
         constexpr Index kCut = kTokens - 3;  // before few tokens, which leave of the state enough to see
         const Sequence<Scalar> x = draw_head<Scalar>(seed);
         const Trajectory<Scalar> before = recurrent<GatedDeltaRule>(x.slice(0, kCut, x.initial_state));
         Scalar g(0);
         for (Index t = kCut; t < kTokens; ++t) g += x.g(t);
         const Matrix<Scalar> decayed = Scalar(exp(g)) * before.state;
         return relative_difference(recurrent<GatedDeltaRule>(x.slice(kCut, kTokens, decayed)).state,
                                    recurrent<GatedDeltaRule>(x).state);
       }},
      {"NC-read-before-write", "gdn_read_before_write", kGated, "o_t from the state before token t (GDN-39)",
       differs,
       []<class Scalar>(std::uint64_t seed) {
         const Sequence<Scalar> x = draw_head<Scalar>(seed);
         Matrix<Scalar> o(kTokens, kValueWidth);
         Matrix<Scalar> S = x.initial_state;
         for (Index t = 0; t < kTokens; ++t) {
           o.row(t) = x.scale * (x.q.row(t) * S);
           S = recurrent<GatedDeltaRule>(x.slice(t, t + 1, S)).state;
         }
         return relative_difference(o, recurrent<GatedDeltaRule>(x).o);
       }},
      {"NC-prediction-before-decay", "gdn_prediction_before_decay", kGated,
       "v - S^T k with the state not yet decayed (GDN-36)", differs,
       []<class Scalar>(std::uint64_t seed) {
         using std::exp;
         const Sequence<Scalar> x = draw_head<Scalar>(seed);
         Matrix<Scalar> S = x.initial_state;
         for (Index t = 0; t < kTokens; ++t) {
           const Matrix<Scalar> u = x.beta(t) * (x.v.row(t) - x.k.row(t) * S);
           S *= Scalar(exp(x.g(t)));
           S += x.k.row(t).transpose() * u;
         }
         return relative_difference(S, recurrent<GatedDeltaRule>(x).state);
       }},
      // The mask whose row is the key (RET-3, index order).
      {"NC-transposed-mask", "retention_transposed_mask", kRetention, "Gamma^T in place of Gamma (RET-3)",
       differs,
       []<class Scalar>(std::uint64_t seed) {
         const Sequence<Scalar> x = draw_head<Scalar>(seed, true);
         const Matrix<Scalar> QK = x.q * x.k.transpose();
         const Matrix<Scalar> gamma = decay_between(x.g).transpose();
         return relative_difference(Matrix<Scalar>(x.scale * (QK.cwiseProduct(gamma) * x.v)),
                                    recurrent<Retention>(x).o);
       }},
      // The mask whose product begins at j: the own step decayed.
      {"NC-own-step-decayed", "retention_own_step_decayed", kRetention,
       "Gamma's product from j in place of j + 1 (RET-3)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Sequence<Scalar> x = draw_head<Scalar>(seed, true);
         const Matrix<Scalar> QK = x.q * x.k.transpose();
         const Vector<Scalar> step = x.g.unaryExpr([](const Scalar& g) {
           using std::exp;
           return Scalar(exp(g));
         });
         const Matrix<Scalar> gamma = decay_between(x.g) * step.asDiagonal();
         return relative_difference(Matrix<Scalar>(x.scale * (QK.cwiseProduct(gamma) * x.v)),
                                    recurrent<Retention>(x).o);
       }},
      {"NC-causal-reassociation", "linear_attention_causal_reassociation", kLinear,
       "Q (K^T V) in place of the causal form (E-12, LA-1)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Sequence<Scalar> x = draw_head<Scalar>(seed, true);
         return relative_difference(linear_attention_bidirectional_state_first(x),
                                    linear_attention_parallel(x));
       }},
  };
  const std::vector<Identity> invariants = recurrent_family_invariants::rows();
  rows.insert(rows.end(), invariants.begin(), invariants.end());
  return rows;
}

}  // namespace samestate::recurrent_family_identities

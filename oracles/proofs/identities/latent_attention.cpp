#include "reference/latent_attention.h"

#include "oracles/proofs/identities/draw.h"
#include "oracles/proofs/identities/groups.h"
#include "reference/scalars.h"

namespace samestate::latent_attention_identities {
namespace {

constexpr Index kTokens = 7;
constexpr Index kWidth = 9;  // D
constexpr double kTheta = 1e4;

/// n, r, dv, c and q all different (EQUATIONS 8.4).
template <class Scalar>
struct Drawn {
  LatentAttentionWeights<Scalar> weights;
  Matrix<Scalar> x;
  RotaryTables<Scalar> tables;
};

template <class Scalar>
Drawn<Scalar> draw(std::uint64_t seed) {
  constexpr Index H = 3, n = 3, r = 4, dv = 2, c = 5, q = 6;
  IdentityDraw<Scalar> random(seed);
  Drawn<Scalar> out;
  LatentAttentionWeights<Scalar>& w = out.weights;
  w.heads = H;
  w.q_down = random.normal(q, kWidth);
  w.q_norm = random.uniform_vector(q, 0.5, 1.5);
  w.q_up = random.normal(H * (n + r), q, 0.7);
  w.kv_down = random.normal(c + r, kWidth);
  w.kv_norm = random.uniform_vector(c, 0.5, 1.5);
  w.kv_up = random.normal(H * (n + dv), c, 0.7);
  w.output = random.normal(kWidth, H * dv);
  out.x = random.normal(kTokens, kWidth);
  out.tables = rotary_tables(0, kTokens, r, Scalar(kTheta));
  return out;
}

/// The document's layer: no norms, no rotary key, queries from x.
template <class Scalar>
Drawn<Scalar> draw_literal(std::uint64_t seed) {
  constexpr Index H = 3, n = 3, dv = 2, c = 5;
  IdentityDraw<Scalar> random(seed);
  Drawn<Scalar> out;
  out.weights.heads = H;
  out.weights.q_up = random.normal(H * n, kWidth, 0.5);
  out.weights.kv_down = random.normal(c, kWidth, 0.5);
  out.weights.kv_up = random.normal(H * (n + dv), c, 0.5);
  out.weights.output = random.normal(kWidth, H * dv);
  out.x = random.normal(kTokens, kWidth);
  return out;
}

template <class Scalar>
Matrix<Scalar> run(const Drawn<Scalar>& in, LatentForm form = LatentForm::naive) {
  return latent_attention(in.x, in.weights, in.tables, form).y;
}

/// y of the tokens in segments of `segment`, each after the cache of those before.
template <class Scalar>
LatentAttention<Scalar> resume(const Drawn<Scalar>& in, Index segment, LatentForm form) {
  LatentAttention<Scalar> all;
  all.y.resize(in.x.rows(), in.x.cols());
  for (Index begin = 0; begin < in.x.rows(); begin += segment) {
    const Index n = std::min(segment, in.x.rows() - begin);
    const RotaryTables<Scalar> tables{in.tables.cos.middleRows(begin, n), in.tables.sin.middleRows(begin, n)};
    const Matrix<Scalar> x = in.x.middleRows(begin, n);
    LatentAttention<Scalar> part = latent_attention(x, in.weights, tables, form, all.cache);
    all.y.middleRows(begin, n) = part.y;
    all.cache = std::move(part.cache);
  }
  return all;
}

template <class Scalar, LatentForm form>
double naive_is(std::uint64_t seed) {
  const Drawn<Scalar> in = draw<Scalar>(seed);
  return relative_difference(run(in, form), run(in));
}
template <class Scalar>
double absorbed(std::uint64_t seed) {
  return naive_is<Scalar, LatentForm::absorbed>(seed);
}
template <class Scalar>
double fully_absorbed(std::uint64_t seed) {
  return naive_is<Scalar, LatentForm::fully_absorbed>(seed);
}

/// Segments of 1 are decode; of 3, chunked prefill with a ragged tail.
template <class Scalar, Index segment>
double resumed(std::uint64_t seed) {
  const Drawn<Scalar> in = draw<Scalar>(seed);
  const LatentAttention<Scalar> whole = latent_attention(in.x, in.weights, in.tables);
  double worst = 0.0;
  for (LatentForm form : {LatentForm::naive, LatentForm::absorbed, LatentForm::fully_absorbed}) {
    const LatentAttention<Scalar> parts = resume(in, segment, form);
    worst = std::max({worst, relative_difference(parts.y, whole.y),
                      relative_difference(parts.cache.latent, whole.cache.latent),
                      relative_difference(parts.cache.rotary_key, whole.cache.rotary_key)});
  }
  return worst;
}
// Negative controls: each is E-14, or a slip that the equivalences above must not hide.

}  // namespace

std::vector<Identity> rows() {
  constexpr Expectation equal = Expectation::equal;
  constexpr Expectation differs = Expectation::differs;
  return {
      {"EQ-16", "mla_absorbed", "latent_attention", "restored K and V = W_UK and W_UV absorbed", equal,
       []<class Scalar>(std::uint64_t seed) { return absorbed<Scalar>(seed); }},
      {"EQ-16", "mla_fully_absorbed", "latent_attention",
       "restored K and V = W_UK merged into W_Q, W_UV into W_O", equal,
       []<class Scalar>(std::uint64_t seed) { return fully_absorbed<Scalar>(seed); }},
      // The head outputs before W_O, which would mix them.
      {"EQ-16", "mla_absorbed_heads", "latent_attention", "head outputs before W_O: restored = absorbed",
       equal,
       []<class Scalar>(std::uint64_t seed) {
         const Drawn<Scalar> in = draw<Scalar>(seed);
         return relative_difference(latent_attention(in.x, in.weights, in.tables, LatentForm::absorbed).heads,
                                    latent_attention(in.x, in.weights, in.tables, LatentForm::naive).heads);
       }},
      {"EQ-16", "mla_literal_absorbed", "latent_attention",
       "the document's layer (no norm, no rotary key): restored = absorbed = fully absorbed", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Drawn<Scalar> in = draw_literal<Scalar>(seed);
         const Matrix<Scalar> naive = run(in);
         return std::max(relative_difference(run(in, LatentForm::absorbed), naive),
                         relative_difference(run(in, LatentForm::fully_absorbed), naive));
       }},
      {"EQ-16", "mla_decode", "latent_attention",
       "one pass = token by token on the cache of c + r numbers, every form, output and cache", equal,
       []<class Scalar>(std::uint64_t seed) { return resumed<Scalar, 1>(seed); }},
      {"EQ-16", "mla_chunked_prefill", "latent_attention",
       "one pass = segments of 3 with a ragged tail, every form, output and cache", equal,
       []<class Scalar>(std::uint64_t seed) { return resumed<Scalar, 3>(seed); }},
      // Decode on the latent cache against attention over a cache of full, restored keys and values.
      {"EQ-16", "mla_full_cache", "latent_attention",
       "K and V restored from the latent cache = a cache of all K and V", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Drawn<Scalar> in = draw<Scalar>(seed);
         KeyValueCache<Scalar> full;
         for (Index t = 0; t < kTokens; ++t) {
           const Matrix<Scalar> x = in.x.row(t);
           const RotaryTables<Scalar> tables{in.tables.cos.row(t), in.tables.sin.row(t)};
           const KeyValueCache<Scalar> kv =
               restored_keys_values(latent_of(x, in.weights, tables), in.weights);
           full = full.appended(kv.k, kv.v);
         }
         const LatentCache<Scalar> latent = resume(in, 1, LatentForm::absorbed).cache;
         const KeyValueCache<Scalar> restored = restored_keys_values(latent, in.weights);
         return std::max(relative_difference(restored.k, full.k), relative_difference(restored.v, full.v));
       }},
      // All positions later by 5: the scores see distances alone.
      {"EQ-16", "mla_shifted_positions", "latent_attention", "positions 0.. = positions 5..", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Drawn<Scalar> in = draw<Scalar>(seed);
         Drawn<Scalar> later = in;
         later.tables = rotary_tables(5, kTokens, in.tables.width(), Scalar(kTheta));
         return relative_difference(run(later, LatentForm::absorbed), run(in));
       }},
      {"NC-mla-no-latent-norm", "mla_no_latent_norm", "latent_attention",
       "latent without its norm (MLA-3, E-14) against with it", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Drawn<Scalar> in = draw<Scalar>(seed);
         Drawn<Scalar> wrong = in;
         wrong.weights.kv_norm.resize(0);
         return relative_difference(run(wrong), run(in));
       }},
      // The cache holds the latent alone (MLA-4): earlier rotary keys read as 0.
      {"NC-mla-no-rotary-key", "mla_no_rotary_key", "latent_attention",
       "no rotary key (MLA-4, E-14) against with it", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Drawn<Scalar> in = draw<Scalar>(seed);
         Drawn<Scalar> wrong = in;
         wrong.weights.kv_down.bottomRows(in.tables.width()).setZero();
         return relative_difference(run(wrong), run(in));
       }},
      {"NC-mla-half-pairs", "mla_half_pairs", "latent_attention",
       "rotary pairs (i, i + r/2) against interleaved (2i, 2i + 1)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Drawn<Scalar> in = draw<Scalar>(seed);
         Drawn<Scalar> wrong = in;
         wrong.weights.pairs = RotaryPairs::halves;
         return relative_difference(run(wrong), run(in));
       }},
      // Every decode step at position 0.
      {"NC-mla-decode-position", "mla_decode_without_positions", "latent_attention",
       "decode with every token at position 0 against one pass", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Drawn<Scalar> in = draw<Scalar>(seed);
         Drawn<Scalar> wrong = in;
         wrong.tables.cos.setOnes();
         wrong.tables.sin.setZero();
         return relative_difference(resume(wrong, 1, LatentForm::absorbed).y, run(in));
       }},
      // The scale of the non-rotary width alone, n^-1/2.
      {"NC-mla-scale", "mla_scale_of_nope", "latent_attention", "scale n^-1/2 against (n + r)^-1/2", differs,
       []<class Scalar>(std::uint64_t seed) {
         using std::sqrt;
         const Drawn<Scalar> in = draw<Scalar>(seed);
         Drawn<Scalar> wrong = in;
         const LatentWidths w = in.weights.widths();
         wrong.weights.score_factor =
             sqrt(Scalar(Scalar(static_cast<double>(w.key())) / Scalar(static_cast<double>(w.nope))));
         return relative_difference(run(wrong), run(in));
       }},
      // Scores of one head whose RESTORED key turns, R_t q . R_s W c_s, against the absorption of W as if the
      // rotation commuted with it, R_t W^T q . R_s c_s (EQUATIONS 5.9: why the rotary key is a part of its own).
      {"NC-mla-rotated-latent", "mla_rotation_of_the_latent", "latent_attention",
       "rotating the latent and absorbing W_UK against rotating the restored key", differs,
       []<class Scalar>(std::uint64_t seed) {
         constexpr Index width = 4;
         IdentityDraw<Scalar> random(seed);
         const Matrix<Scalar> q = random.normal(kTokens, width);
         const Matrix<Scalar> c = random.normal(kTokens, width);
         const Matrix<Scalar> up = random.normal(width, width);
         const RotaryTables<Scalar> tables = rotary_tables(0, kTokens, width, Scalar(kTheta));
         const auto turned = [&](const Matrix<Scalar>& x) {
           return rotate(x, tables, RotaryPairs::interleaved);
         };
         const Matrix<Scalar> restored = turned(q) * turned(linear(c, up)).transpose();
         const Matrix<Scalar> back = up.transpose();
         const Matrix<Scalar> absorbed_scores = turned(linear(q, back)) * turned(c).transpose();
         return relative_difference(absorbed_scores, restored);
       }},
  };
}

}  // namespace samestate::latent_attention_identities

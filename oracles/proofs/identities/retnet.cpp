#include "reference/retnet.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "oracles/proofs/identities/draw.h"
#include "oracles/proofs/identities/groups.h"
#include "reference/layers/multi_scale_retention.h"
#include "reference/retention.h"
#include "reference/scalars.h"

namespace samestate::retnet_identities {
namespace {

constexpr Index kTokens = 19;
constexpr Index kKeyWidth = 4;
constexpr Index kValueWidth = 3;

/// One head; `size` scales the values, and with them the mean square that epsilon is added to.
template <class Scalar>
struct Head {
  Matrix<Scalar> q, k, v;
  Scalar gamma{1.0 - 0x1p-5};
  explicit Head(std::uint64_t seed, double size = 1.0) {
    IdentityDraw<Scalar> draw(seed);
    q = draw.normal(kTokens, kKeyWidth);
    k = draw.normal(kTokens, kKeyWidth);
    v = draw.normal(kTokens, kValueWidth, size);
  }
};

template <class Scalar>
Matrix<Scalar> parallel(const Head<Scalar>& x) {
  return normalised_retention_parallel(x.q, x.k, x.v, x.gamma);
}

template <class Scalar>
Matrix<Scalar> recurrent_form(const Head<Scalar>& x) {
  NormalisedRetentionState<Scalar> state{Matrix<Scalar>::Zero(kKeyWidth, kValueWidth)};
  return normalised_retention_recurrent(x.q, x.k, x.v, x.gamma, state);
}

template <class Scalar>
Matrix<Scalar> chunks(const Head<Scalar>& x, Index chunk) {
  return normalised_retention_chunked(x.q, x.k, x.v, x.gamma, chunk);
}

/// The core, which nothing normalises.
template <class Scalar>
Matrix<Scalar> core(const Head<Scalar>& x) {
  Sequence<Scalar> s;
  s.q = x.q;
  s.k = x.k;
  s.v = x.v;
  return retention_parallel_constant(s, x.gamma);
}

template <class Scalar>
double normed(const Matrix<Scalar>& a, const Matrix<Scalar>& b, double epsilon) {
  return relative_difference(retention_norm(a, Scalar(epsilon)), retention_norm(b, Scalar(epsilon)));
}

// ---- the layer

constexpr Index kHeads = 2;
constexpr Index kHidden = 6;

template <class Scalar>
struct Layer {
  MultiScaleRetentionWeights<Scalar> w;
  Matrix<Scalar> x;
  explicit Layer(std::uint64_t seed) {
    IdentityDraw<Scalar> draw(seed);
    w.heads = kHeads;
    w.q_proj = draw.normal(kHeads * kKeyWidth, kHidden, 0.5);
    w.k_proj = draw.normal(kHeads * kKeyWidth, kHidden, 0.5);
    w.v_proj = draw.normal(kHeads * kValueWidth, kHidden, 0.5);
    w.g_proj = draw.normal(kHeads * kValueWidth, kHidden, 0.5);
    w.out_proj = draw.normal(kHidden, kHeads * kValueWidth, 0.5);
    w.epsilon = Scalar(0);
    x = draw.normal(kTokens, kHidden);
  }
};

template <class Scalar>
Matrix<Scalar> layer_parallel(const Layer<Scalar>& layer) {
  const auto run = [](const Matrix<Scalar>& q, const Matrix<Scalar>& k, const Matrix<Scalar>& v,
                      const Scalar& gamma, Index) { return normalised_retention_parallel(q, k, v, gamma); };
  return multi_scale_retention(layer.x, layer.w, run).y;
}

/// Token by token with the normalised states carried; `positions`: whether a token knows where it stands.
template <class Scalar>
double layer_decoded(std::uint64_t seed, bool positions) {
  const Layer<Scalar> layer(seed);
  std::vector<NormalisedRetentionState<Scalar>> states(
      kHeads, NormalisedRetentionState<Scalar>{Matrix<Scalar>::Zero(kKeyWidth, kValueWidth)});
  const auto run = [&](const Matrix<Scalar>& q, const Matrix<Scalar>& k, const Matrix<Scalar>& v,
                       const Scalar& gamma, Index h) {
    return normalised_retention_recurrent(q, k, v, gamma, states[static_cast<std::size_t>(h)]);
  };
  Matrix<Scalar> y(kTokens, kHidden);
  for (Index t = 0; t < kTokens; ++t) {
    y.row(t) = multi_scale_retention<Scalar>(layer.x.row(t), layer.w, run, positions ? t : 0).y;
  }
  return relative_difference(y, layer_parallel(layer));
}

}  // namespace

std::vector<Identity> rows() {
  using enum Expectation;
  constexpr std::string_view kSystem = "retnet";
  return {
      {"EQ-11", "retnet_recurrent_after_norm", kSystem,
       "normalised recurrent = parallel, after the norm with epsilon 0", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Head<Scalar> x(seed);
         return normed(recurrent_form(x), parallel(x), 0.0);
       }},
      {"EQ-11", "retnet_chunked_after_norm", kSystem,
       "normalised chunks of 1, 5, 8, 19, 64 = recurrent, after the norm with epsilon 0", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Head<Scalar> x(seed);
         double worst = 0.0;
         for (const Index chunk : {1, 5, 8, 19, 64}) {
           worst = std::max(worst, normed(chunks(x, chunk), recurrent_form(x), 0.0));
         }
         return worst;
       }},
      {"EQ-11", "retnet_core_after_norm", kSystem,
       "normalised parallel = core that nothing normalises, after the norm", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Head<Scalar> x(seed);
         return normed(parallel(x), core(x), 0.0);
       }},
      // o_t sqrt(s_t), s_t = 1 + gamma + .. + gamma^t: the recurrent form's division undone, without the norm.
      {"EQ-11", "retnet_recurrent_scale_undone", kSystem,
       "normalised recurrent times sqrt(s_t) = core, before the norm", equal,
       []<class Scalar>(std::uint64_t seed) {
         using std::sqrt;
         const Head<Scalar> x(seed);
         Matrix<Scalar> o = recurrent_form(x);
         Scalar s(0);
         for (Index t = 0; t < kTokens; ++t) {
           s = x.gamma * s + Scalar(1);
           o.row(t) *= Scalar(sqrt(s));
         }
         return relative_difference(o, core(x));
       }},
      {"EQ-11", "retnet_layer_chunked", kSystem, "multi-scale retention: chunks = parallel, epsilon 0", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Layer<Scalar> layer(seed);
         const auto run = [](const Matrix<Scalar>& q, const Matrix<Scalar>& k, const Matrix<Scalar>& v,
                             const Scalar& gamma,
                             Index) { return normalised_retention_chunked(q, k, v, gamma, 5); };
         return relative_difference(multi_scale_retention(layer.x, layer.w, run).y, layer_parallel(layer));
       }},
      {"EQ-11", "retnet_layer_decode", kSystem, "multi-scale retention: token by token = parallel, epsilon 0",
       equal, []<class Scalar>(std::uint64_t seed) { return layer_decoded<Scalar>(seed, true); }},
      {"EQ-11", "retnet_layer_core", kSystem, "multi-scale retention: core = normalised parallel, epsilon 0",
       equal,
       []<class Scalar>(std::uint64_t seed) {
         const Layer<Scalar> layer(seed);
         const auto run = [](const Matrix<Scalar>& q, const Matrix<Scalar>& k, const Matrix<Scalar>& v,
                             const Scalar&, Index h) {
           Sequence<Scalar> x{q, k, v, {}, {}, Scalar(1), Matrix<Scalar>::Zero(kKeyWidth, kValueWidth)};
           x.g = Vector<Scalar>::Constant(kTokens, retention_log_decay<Scalar>(h));
           return recurrent<Retention>(x).o;
         };
         return relative_difference(multi_scale_retention(layer.x, layer.w, run).y, layer_parallel(layer));
       }},
      // Positions moved by a constant: the rotation sees distances only.
      {"EQ-11", "retnet_layer_shifted", kSystem, "multi-scale retention: positions 0.. = positions 11..",
       equal,
       []<class Scalar>(std::uint64_t seed) {
         const Layer<Scalar> layer(seed);
         const auto run = [](const Matrix<Scalar>& q, const Matrix<Scalar>& k, const Matrix<Scalar>& v,
                             const Scalar& gamma,
                             Index) { return normalised_retention_parallel(q, k, v, gamma); };
         return relative_difference(multi_scale_retention(layer.x, layer.w, run, 11).y,
                                    layer_parallel(layer));
       }},
      // How far the forms may be apart under an epsilon: a normed row of mean square m is shorter than without
      // epsilon by sqrt(dv) (1 - (1 + epsilon/m)^-1/2) <= sqrt(dv) epsilon / 2m, in either form with its own m.
      {"EQ-11", "retnet_epsilon_effect", kSystem,
       "epsilon moves a form by at most epsilon / 2m of the row's mean square m", holds,
       []<class Scalar>(std::uint64_t seed) {
         using std::abs;
         using std::sqrt;
         const Head<Scalar> x(seed);
         const Scalar epsilon(1e-6);
         const Matrix<Scalar> a = recurrent_form(x);
         const Matrix<Scalar> b = parallel(x);
         const Matrix<Scalar> na = retention_norm(a, epsilon);
         const Matrix<Scalar> nb = retention_norm(b, epsilon);
         double worst = 0.0;
         for (Index t = 0; t < kTokens; ++t) {
           const Scalar width(static_cast<double>(kValueWidth));
           const Scalar ma = a.row(t).squaredNorm() / width;
           const Scalar mb = b.row(t).squaredNorm() / width;
           // row.
           const Scalar limit = sqrt(width) * epsilon / Scalar(2) * Scalar(Scalar(1) / ma + Scalar(1) / mb);
           const Matrix<Scalar> apart = na.row(t) - nb.row(t);
           const Scalar distance = sqrt(Scalar(apart.squaredNorm()));
           if (distance > limit)
             worst = std::max(worst, static_cast<double>(Scalar((distance - limit) / limit)));
         }
         return worst;
       }},
      {"NC-retnet-recurrent-raw", "retnet_recurrent_raw", kSystem,
       "normalised recurrent against parallel without the norm", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Head<Scalar> x(seed);
         return relative_difference(recurrent_form(x), parallel(x));
       }},
      {"NC-retnet-chunked-raw", "retnet_chunked_raw", kSystem,
       "normalised chunks against the other forms without the norm", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Head<Scalar> x(seed);
         return std::min(relative_difference(chunks(x, 5), parallel(x)),
                         relative_difference(chunks(x, 5), recurrent_form(x)));
       }},
      // Values of size 2^-8, mean squares of the order of epsilon: the scales no longer cancel.
      {"NC-retnet-recurrent-epsilon", "retnet_recurrent_with_epsilon", kSystem,
       "values of 2^-8, epsilon 1e-6: recurrent against parallel after the norm", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Head<Scalar> x(seed, 0x1p-8);
         return normed(recurrent_form(x), parallel(x), 1e-6);
       }},
      {"NC-retnet-chunked-epsilon", "retnet_chunked_with_epsilon", kSystem,
       "values of 2^-8, epsilon 1e-6: chunks against recurrent after the norm", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Head<Scalar> x(seed, 0x1p-8);
         return normed(chunks(x, 5), recurrent_form(x), 1e-6);
       }},
      {"NC-retnet-decode-position", "retnet_decode_without_positions", kSystem,
       "decode that rotates every token as the first", differs,
       []<class Scalar>(std::uint64_t seed) { return layer_decoded<Scalar>(seed, false); }},
  };
}

}  // namespace samestate::retnet_identities

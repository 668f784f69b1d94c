#include <algorithm>
#include <cmath>

#include "oracles/proofs/identities/draw.h"
#include "oracles/proofs/identities/groups.h"
#include "reference/l2norm.h"
#include "reference/norms.h"
#include "reference/scalars.h"

namespace samestate::norm_identities {
namespace {

constexpr Index kRows = 6;
constexpr Index kWidth = 8;

template <class Scalar>
Scalar epsilon() {
  return Scalar(1e-6);
}

/// Inputs of every identity here.
template <class Scalar>
struct Data {
  Matrix<Scalar> x, z;
  Vector<Scalar> w;
  explicit Data(std::uint64_t seed) {
    IdentityDraw<Scalar> draw(seed);
    x = draw.normal(kRows, kWidth);
    z = draw.normal(kRows, kWidth);
    w = draw.normal_vector(kWidth);
  }
};

template <class Scalar>
Vector<Scalar> ones() {
  return Vector<Scalar>::Ones(kWidth);
}

template <class Scalar>
Matrix<Scalar> tiny(std::uint64_t seed) {
  return Data<Scalar>(seed).x * Scalar(0x1p-10);
}

}  // namespace

std::vector<Identity> rows() {
  using enum Expectation;
  constexpr std::string_view kSystem = "norms";
  return {
      {"EQ-13", "rms_norm_fused_residual", kSystem,
       "norm of x + r with the sum returned = add, then norm (RMS-4)", exact,
       []<class Scalar>(std::uint64_t seed) {
         const Data<Scalar> d(seed);
         const Matrix<Scalar> sum = d.x + d.z;
         const ResidualNorm<Scalar> fused = rms_norm_residual(d.x, d.z, d.w, epsilon<Scalar>());
         return std::max(relative_difference(fused.y, rms_norm_zero_centred(sum, d.w, epsilon<Scalar>())),
                         relative_difference(fused.residual, sum));
       }},
      {"EQ-13", "rms_norm_shifted_weight", kSystem, "zero-centred with w = plain with 1 + w (RMS-5, RMS-6)",
       exact,
       []<class Scalar>(std::uint64_t seed) {
         const Data<Scalar> d(seed);
         const Vector<Scalar> shifted = ones<Scalar>() + d.w;
         return relative_difference(rms_norm_zero_centred(d.x, d.w, epsilon<Scalar>()),
                                    rms_norm(d.x, shifted, epsilon<Scalar>()));
       }},
      // w h / root(mean h^2 + epsilon) SiLU(z), entry by entry as printed (RMS-8).
      {"RMS-8", "rms_norm_gated_as_printed", kSystem,
       "norm, weight, then gate = the printed formula, by entry", equal,
       []<class Scalar>(std::uint64_t seed) {
         using std::exp;
         using std::sqrt;
         const Data<Scalar> d(seed);
         Matrix<Scalar> y(kRows, kWidth);
         for (Index t = 0; t < kRows; ++t) {
           Scalar sum(0);
           for (Index i = 0; i < kWidth; ++i) sum += d.x(t, i) * d.x(t, i);
           const Scalar mean = sum / Scalar(static_cast<double>(kWidth));
           const Scalar root = sqrt(Scalar(mean + epsilon<Scalar>()));
           for (Index i = 0; i < kWidth; ++i) {
             const Scalar sigma = Scalar(1) / Scalar(Scalar(1) + exp(Scalar(-d.z(t, i))));
             y(t, i) = d.w(i) * d.x(t, i) / root * d.z(t, i) * sigma;
           }
         }
         return relative_difference(rms_norm_gated(d.x, d.z, d.w, epsilon<Scalar>()), y);
       }},
      // The mean of d squares is their sum over d, so the l2 norm's epsilon is d times larger.
      {"RMS-5", "rms_norm_is_scaled_l2norm", kSystem,
       "norm with weight 1, over root d = l2norm with epsilon d e", equal,
       []<class Scalar>(std::uint64_t seed) {
         using std::sqrt;
         const Data<Scalar> d(seed);
         const Scalar width(static_cast<double>(kWidth));
         const Matrix<Scalar> rms = rms_norm(d.x, ones<Scalar>(), epsilon<Scalar>());
         const Scalar root = sqrt(width);
         const Matrix<Scalar> scaled = rms / root;
         return relative_difference(scaled, l2norm(d.x, Scalar(width * epsilon<Scalar>())));
       }},
      // A wrong factor is invisible after the norm once epsilon is small in comparison with it (EQUATIONS
      // 8.1).
      {"RMS-5", "rms_norm_factor_cancels", kSystem,
       "norm(3x) with epsilon 9e = norm(x) with e (EQUATIONS 8.1)", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Data<Scalar> d(seed);
         const Matrix<Scalar> larger = d.x * Scalar(3);
         return relative_difference(rms_norm(larger, d.w, Scalar(Scalar(9) * epsilon<Scalar>())),
                                    rms_norm(d.x, d.w, epsilon<Scalar>()));
       }},
      // Powers of two commute with every rounding, the root of their square included.
      {"RMS-5", "rms_norm_power_of_two_cancels", kSystem,
       "norm(4x) with epsilon 16e = norm(x) with e, bit for bit", exact,
       []<class Scalar>(std::uint64_t seed) {
         const Data<Scalar> d(seed);
         const Scalar small(0x1p-20);
         const Matrix<Scalar> larger = d.x * Scalar(4);
         return relative_difference(rms_norm(larger, d.w, Scalar(Scalar(16) * small)),
                                    rms_norm(d.x, d.w, small));
       }},
      // Returns by how much mean y^2 exceeds 1: with weight 1 it is m / (m + epsilon) < 1.
      {"RMS-5", "rms_norm_mean_square_below_one", kSystem, "with weight 1, mean y^2 = m / (m + epsilon) < 1",
       holds,
       []<class Scalar>(std::uint64_t seed) {
         const Data<Scalar> d(seed);
         const Matrix<Scalar> y = rms_norm(d.x, ones<Scalar>(), epsilon<Scalar>());
         double worst = 0.0;
         for (Index t = 0; t < y.rows(); ++t) {
           const Scalar mean = y.row(t).squaredNorm() / Scalar(static_cast<double>(kWidth));
           worst = std::max(worst, static_cast<double>(Scalar(mean - Scalar(1))));
         }
         return worst;
       }},
      {"NC-norm-after-gate", "norm_after_gate", kSystem, "norm(x silu(z)) is not norm(x) silu(z) (RMS-1)",
       differs,
       []<class Scalar>(std::uint64_t seed) {
         const Data<Scalar> d(seed);
         return relative_difference(rms_norm_of_gated(d.x, d.z, d.w, epsilon<Scalar>()),
                                    rms_norm_gated(d.x, d.z, d.w, epsilon<Scalar>()));
       }},
      {"NC-zero-centred-as-plain", "zero_centred_as_plain", kSystem, "w in place of 1 + w (E-16, RMS-2)",
       differs,
       []<class Scalar>(std::uint64_t seed) {
         const Data<Scalar> d(seed);
         return relative_difference(rms_norm(d.x, d.w, epsilon<Scalar>()),
                                    rms_norm_zero_centred(d.x, d.w, epsilon<Scalar>()));
       }},
      // Two heads of half the width, normalised apart and as one vector (RMS-8).
      {"NC-norm-over-heads", "norm_over_all_heads", kSystem,
       "one mean over all heads, not one a head (RMS-8)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Data<Scalar> d(seed);
         const Index half = kWidth / 2;
         const Vector<Scalar> w = d.w.head(half);
         Vector<Scalar> both(kWidth);
         both << w, w;
         Matrix<Scalar> apart(kRows, kWidth);
         for (Index h = 0; h < 2; ++h) {
           const Matrix<Scalar> head = d.x.middleCols(h * half, half);
           apart.middleCols(h * half, half) = rms_norm(head, w, epsilon<Scalar>());
         }
         return relative_difference(rms_norm(d.x, both, epsilon<Scalar>()), apart);
       }},
      // epsilon added to the SUM of squares, as the l2 norm does: d times less.
      {"NC-epsilon-on-sum", "norm_epsilon_on_sum", kSystem,
       "epsilon added to the sum, not the mean (5.1, 5.2)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Matrix<Scalar> x = tiny<Scalar>(seed);
         const Scalar spread = epsilon<Scalar>() / Scalar(static_cast<double>(kWidth));
         return relative_difference(rms_norm(x, ones<Scalar>(), spread),
                                    rms_norm(x, ones<Scalar>(), epsilon<Scalar>()));
       }},
      {"NC-epsilon-outside-root", "norm_epsilon_outside_root", kSystem, "epsilon added to the root (5.1)",
       differs,
       []<class Scalar>(std::uint64_t seed) {
         using std::sqrt;
         const Matrix<Scalar> x = tiny<Scalar>(seed);
         Matrix<Scalar> y = x;
         for (Index t = 0; t < x.rows(); ++t) {
           const Scalar mean = x.row(t).squaredNorm() / Scalar(static_cast<double>(kWidth));
           const Scalar root = sqrt(mean);
           y.row(t) /= Scalar(root + epsilon<Scalar>());
         }
         return relative_difference(y, rms_norm(x, ones<Scalar>(), epsilon<Scalar>()));
       }},
      {"NC-residual-after-norm", "residual_after_norm", kSystem,
       "the normalised rows handed on as residual (RMS-4)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Data<Scalar> d(seed);
         const ResidualNorm<Scalar> fused = rms_norm_residual(d.x, d.z, d.w, epsilon<Scalar>());
         return relative_difference(fused.y, fused.residual);
       }},
  };
}

}  // namespace samestate::norm_identities

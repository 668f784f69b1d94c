#pragma once

#include <string>
#include <string_view>

#include "reference/contract.h"
#include "reference/sequence.h"

namespace samestate {

/// What a kernel with conventions of its own is given in place of g, beta and q: the conversion is rounded once, and the
/// oracle reads the value that the rounded one stands for, so that no kernel is blamed for it (docs/lookup/subjects.md).
struct Given {
  static constexpr double kNormEpsilon = 1e-6;  ///< GDN-32
  enum class Decay {
    ln,      ///< g
    log2,    ///< g / ln 2
    linear,  ///< e^g
    raw      ///< the x with -log(1 + e^x) = g
  };
  enum class Strength {
    beta,
    logit,       ///< the b with 1 / (1 + e^-b) = beta
    twice_logit  ///< with 2 / (1 + e^-b) = beta
  };
  /// Where a kernel that normalises q and k itself has its epsilon.
  enum class NormPlace {
    inside,   ///< x / sqrt(sum x^2 + epsilon)
    outside,  ///< x / (|x| + epsilon)
    maximum   ///< x / max(|x|, epsilon)
  };
  Decay decay = Decay::ln;
  Strength strength = Strength::beta;
  bool folded_scale = false;  ///< q is multiplied by the scale before the call
  NormPlace norm = NormPlace::inside;
  double norm_epsilon = kNormEpsilon;
  Format g = Format::fp32, beta = Format::fp32, q = Format::fp32;  ///< as given

  bool operator==(const Given&) const = default;

  /// The number that the kernel gets.
  [[nodiscard]] double given_g(double g) const;
  [[nodiscard]] double given_beta(double beta) const;
  [[nodiscard]] double given_q(double q, double scale) const;
  /// What that number stands for. A decay that is rounded to 0 stands for the g that it came from: any g so low does.
  [[nodiscard]] double read_g(double g) const;
  [[nodiscard]] double read_beta(double beta) const;
  [[nodiscard]] double read_q(double q, double scale) const;
  /// Rows of q or k as a kernel with this norm normalises them, in float64.
  [[nodiscard]] Matrix<double> normalised(const Matrix<double>& x) const;
  /// The norm of GDN-32, which every kernel of ours has.
  [[nodiscard]] bool usual_norm() const { return norm == NormPlace::inside && norm_epsilon == kNormEpsilon; }
};

/// "decay=linear l2norm_place=max l2norm_epsilon=0.001 g=bf16": in a declaration's words what is not canonical, with the
/// formats of q, g and beta; empty where all is. A run file carries it.
[[nodiscard]] std::string text_of(const Given& given);

/// What text_of made of it. Throws Error that names the word that it would not have written.
[[nodiscard]] Given given_in(std::string_view text);

}  // namespace samestate

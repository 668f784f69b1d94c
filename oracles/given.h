#pragma once

#include <string>
#include <string_view>

#include "reference/contract.h"
#include "reference/sequence.h"

namespace samestate {

/// The form in which a kernel with its own conventions receives g, beta and q. The conversion is rounded
/// once, and the oracle reads the value that the rounded one represents, so no kernel is blamed for the
/// conversion (docs/lookup/subjects.md).
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
  /// Where a kernel that normalises q and k itself puts its epsilon.
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
  Format g = Format::fp32, beta = Format::fp32, q = Format::fp32;  ///< the formats in which they are given

  bool operator==(const Given&) const = default;

  /// The number that the kernel receives.
  [[nodiscard]] double given_g(double g) const;
  [[nodiscard]] double given_beta(double beta) const;
  [[nodiscard]] double given_q(double q, double scale) const;
  /// The value that this number represents. A decay that is rounded to 0 represents the g that it came from,
  /// because any g that low has the same effect.
  [[nodiscard]] double read_g(double g) const;
  [[nodiscard]] double read_beta(double beta) const;
  [[nodiscard]] double read_q(double q, double scale) const;
  /// Rows of q or k normalised as a kernel with this norm does it, in float64.
  [[nodiscard]] Matrix<double> normalised(const Matrix<double>& x) const;
  /// True for the norm of GDN-32, which every kernel of this repository has.
  [[nodiscard]] bool usual_norm() const { return norm == NormPlace::inside && norm_epsilon == kNormEpsilon; }
};

/// The conventions that are not canonical, in the words of a declaration, with the formats of q, g and beta:
/// "decay=linear l2norm_place=max l2norm_epsilon=0.001 g=bf16". Empty if all are canonical. Run files carry
/// this text.
[[nodiscard]] std::string text_of(const Given& given);

/// Reads the output of text_of. Throws Error that names the word that text_of would not have written.
[[nodiscard]] Given given_in(std::string_view text);

}  // namespace samestate

#pragma once

#include "reference/contract.h"

namespace samestate {

/// What a kernel with conventions of its own is given in place of g, beta and q: the conversion is rounded once, and the
/// oracle reads the value that the rounded one stands for, so that no kernel is blamed for it (docs/subjects.md).
struct Given {
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
  Decay decay = Decay::ln;
  Strength strength = Strength::beta;
  bool folded_scale = false;  ///< q is multiplied by the scale before the call
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
};

}  // namespace samestate

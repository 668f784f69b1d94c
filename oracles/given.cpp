#include "oracles/given.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "oracles/rounding.h"
#include "reference/l2norm.h"

namespace samestate {
namespace {

/// e^-x is 0 in every format, so that a beta of 0 or 1 and a decay of 1 are given exactly.
constexpr double kFar = 1000.0;

}  // namespace

double Given::given_g(double x) const {
  double y = x;
  switch (decay) {
    case Decay::ln:
      break;
    case Decay::log2:
      y = x * std::numbers::log2e;
      break;
    case Decay::linear:
      y = std::exp(x);
      break;
    case Decay::raw:
      // -g = log(1 + e^y), and for a large -g that is y itself.
      y = x == 0.0 ? -kFar : x < -kFar ? -x : std::max(std::log(std::expm1(-x)), -kFar);
      break;
  }
  return round_to(y, g);
}

double Given::read_g(double x) const {
  const double y = given_g(x);
  switch (decay) {
    case Decay::ln:
      break;
    case Decay::log2:
      return y * std::numbers::ln2;
    case Decay::linear:
      return y > 0.0 ? std::log(y) : x;
    case Decay::raw:
      return y > kFar ? -y : -std::log1p(std::exp(y));
  }
  return y;
}

double Given::given_beta(double x) const {
  if (strength == Strength::beta) return round_to(x, beta);
  const double part = strength == Strength::logit ? x : x / 2;
  return round_to(std::clamp(std::log(part / (1.0 - part)), -kFar, kFar), beta);
}

double Given::read_beta(double x) const {
  const double y = given_beta(x);
  if (strength == Strength::beta) return y;
  return (strength == Strength::logit ? 1.0 : 2.0) / (1.0 + std::exp(-y));
}

double Given::given_q(double x, double scale) const { return folded_scale ? round_to(x * scale, q) : x; }

double Given::read_q(double x, double scale) const {
  return folded_scale && scale != 0.0 ? given_q(x, scale) / scale : x;
}

Matrix<double> Given::normalised(const Matrix<double>& x) const {
  if (norm == NormPlace::inside) return l2norm(x, norm_epsilon);
  Matrix<double> y = x;
  for (Index t = 0; t < x.rows(); ++t) {
    const double length = x.row(t).norm();
    y.row(t) /= norm == NormPlace::outside ? length + norm_epsilon : std::max(length, norm_epsilon);
  }
  return y;
}
}  // namespace samestate

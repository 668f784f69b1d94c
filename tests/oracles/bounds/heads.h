#pragma once

#include <cmath>
#include <random>

#include "reference/sequence.h"

/// Random heads for the tests of the bounds.
namespace samestate {

inline Matrix<double> random_matrix(std::mt19937& random, Index rows, Index cols) {
  std::normal_distribution<double> normal;
  return Matrix<double>::NullaryExpr(rows, cols, [&](Index, Index) { return normal(random); });
}

/// Normalised q and k, g in (-0.2, 0), beta in (0, 1), all distinct; values representable in fp32.
inline Sequence<double> random_head(unsigned seed, Index T, Index dk, Index dv) {
  std::mt19937 random(seed + 1000);
  std::uniform_real_distribution<double> unit(0.0, 1.0);
  Sequence<double> x;
  x.q = random_matrix(random, T, dk).rowwise().normalized();
  x.k = random_matrix(random, T, dk).rowwise().normalized();
  x.v = random_matrix(random, T, dv);
  x.g = Vector<double>::NullaryExpr(T, [&](Index) { return -0.2 * unit(random); });
  x.beta = Vector<double>::NullaryExpr(T, [&](Index) { return unit(random); });
  x.scale = 1.0 / std::sqrt(static_cast<double>(dk));
  x.initial_state = 0.3 * random_matrix(random, dk, dv);
  return x.cast<float>().cast<double>();
}

}  // namespace samestate

#pragma once

#include <random>

#include "reference/l2norm.h"
#include "reference/sequence.h"

namespace samestate::test {

/// A random head with keys of unit length, decays in [-1, 0] and beta in [0, 1].
inline Sequence<double> draw(Index T, Index dk, Index dv, unsigned seed = 1, bool gated = true,
                             bool delta = true) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  const auto fill = [&](Matrix<double>& m, Index rows, Index cols) {
    m.resize(rows, cols);
    for (Index i = 0; i < m.size(); ++i) m.data()[i] = normal(engine);
  };
  Sequence<double> x;
  fill(x.q, T, dk);
  fill(x.k, T, dk);
  fill(x.v, T, dv);
  fill(x.initial_state, dk, dv);
  x.k = l2norm(x.k);
  x.g = Vector<double>::Zero(T);
  x.beta = Vector<double>::Ones(T);
  for (Index t = 0; t < T; ++t) {
    if (gated) x.g(t) = -uniform(engine);
    if (delta) x.beta(t) = uniform(engine);
  }
  x.scale = 0.25;
  return x;
}

/// Largest difference over largest value, in double.
template <class A, class B>
double relative(const A& a, const B& b) {
  if (a.size() == 0) return 0.0;
  double difference = 0.0;
  double size = 0.0;
  for (Index i = 0; i < a.rows(); ++i) {
    for (Index j = 0; j < a.cols(); ++j) {
      using std::abs;
      difference = std::max(difference, static_cast<double>(abs(a(i, j) - b(i, j))));
      size = std::max(size, static_cast<double>(abs(b(i, j))));
    }
  }
  return size > 0 ? difference / size : difference;
}

}  // namespace samestate::test

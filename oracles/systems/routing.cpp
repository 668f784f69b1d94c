#include "oracles/systems/routing.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "reference/mixture_of_experts.h"

namespace samestate {
namespace {

double lowest(const Running& x) { return x.value() - x.error(); }
double highest(const Running& x) { return x.value() + x.error(); }

/// Sum of the `count` first of `values`, sorted by `order`.
template <class Order>
double sum_of_first(std::vector<double> values, std::ptrdiff_t count, Order order) {
  std::sort(values.begin(), values.end(), order);
  double sum = 0.0;
  for (std::ptrdiff_t i = 0; i < count; ++i) sum += values[static_cast<std::size_t>(i)];
  return sum;
}

}  // namespace

std::vector<Chosen> certain_choice(const Matrix<Running>& logits, const Matrix<Running>& probabilities,
                                   Index K) {
  const Index N = logits.cols();
  const auto before = [&](Index i, Index j) {
    const Running& x = logits(0, i);
    const Running& y = logits(0, j);
    if (x == y && x.error() == 0.0 && y.error() == 0.0) return i < j;
    return lowest(x) > highest(y) && lowest(probabilities(0, i)) > highest(probabilities(0, j));
  };
  std::vector<Chosen> choice(static_cast<std::size_t>(N), Chosen::open);
  for (Index i = 0; i < N; ++i) {
    Index above = 0;
    Index below = 0;
    for (Index j = 0; j < N; ++j) {
      if (i == j) continue;
      if (before(j, i)) ++above;
      if (before(i, j)) ++below;
    }
    if (above >= K) choice[static_cast<std::size_t>(i)] = Chosen::out;
    if (below >= N - K) choice[static_cast<std::size_t>(i)] = Chosen::in;
  }
  return choice;
}

bool decided(const std::vector<Chosen>& choice) {
  return std::find(choice.begin(), choice.end(), Chosen::open) == choice.end();
}

Matrix<Running> certain_weights(const Matrix<Running>& probabilities, const std::vector<Chosen>& choice,
                                Index K) {
  const Index N = probabilities.cols();
  const auto of = [&](Index i) { return choice[static_cast<std::size_t>(i)]; };
  Running sum(0.0);
  Index places = K;  // that the open ones share
  std::vector<double> values;
  std::vector<double> lows;
  std::vector<double> highs;
  for (Index i = 0; i < N; ++i) {
    const Running& p = probabilities(0, i);
    if (of(i) == Chosen::in) {
      sum += p;
      --places;
    } else if (of(i) == Chosen::open) {
      values.push_back(p.value());
      lows.push_back(lowest(p));
      highs.push_back(highest(p));
    }
  }
  if (places > 0) {
    const double exact = sum_of_first(values, places, std::greater<>());
    const double error = std::max(sum_of_first(highs, places, std::greater<>()) - exact,
                                  exact - sum_of_first(lows, places, std::less<>()));
    const auto each = static_cast<double>(places);
    for (Index i = 0; i < places; ++i) sum += Running::within(exact / each, error / each);
  }
  Matrix<Running> weights = Matrix<Running>::Constant(1, N, Running(0.0));
  for (Index i = 0; i < N; ++i) {
    if (of(i) != Chosen::out) weights(0, i) = probabilities(0, i) / sum;
  }
  weights = stored(std::move(weights));
  for (Index i = 0; i < N; ++i) {
    const Running& w = weights(0, i);
    if (of(i) == Chosen::open) weights(0, i) = Running::within(w.value(), std::abs(w.value()) + w.error());
  }
  return weights;
}

}  // namespace samestate

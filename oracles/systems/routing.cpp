#include "oracles/systems/routing.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "oracles/systems/stage_points.h"
#include "reference/mixture_of_experts.h"

namespace samestate {
namespace {

double lowest(const Running& x) { return x.value() - x.error(); }
double highest(const Running& x) { return x.value() + x.error(); }

/// The ends of the range of each score in a row.
struct Ranges {
  explicit Ranges(const Matrix<Running>& row) {
    for (Index i = 0; i < row.cols(); ++i)
      low.push_back(lowest(row(0, i))), high.push_back(highest(row(0, i)));
  }
  std::vector<double> low;
  std::vector<double> high;
};

/// The sum of the first `count` of `values`, sorted by `order`.
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
  // With 512 experts each token asks a quarter of a million times, so the ends of the ranges are computed
  // once.
  const Ranges x(logits);
  const Ranges p(probabilities);
  std::vector<Chosen> choice(static_cast<std::size_t>(N), Chosen::open);
  for (Index i = 0; i < N; ++i) {
    const auto at = static_cast<std::size_t>(i);
    Index above = 0;
    Index below = 0;
    for (std::size_t j = 0; j < x.low.size(); ++j) {
      above += x.low[j] > x.high[at] && p.low[j] > p.high[at] ? 1 : 0;
      below += x.low[at] > x.high[j] && p.low[at] > p.high[j] ? 1 : 0;
    }
    // Equal scores without an error: the first one wins.
    for (std::size_t j = 0; x.low[at] == x.high[at] && j < x.low.size(); ++j) {
      if (x.low[j] != x.low[at] || x.high[j] != x.high[at]) continue;
      if (j < at) ++above;
      if (j > at) ++below;
    }
    if (above >= K) choice[static_cast<std::size_t>(i)] = Chosen::out;
    if (below >= N - K) choice[static_cast<std::size_t>(i)] = Chosen::in;
  }
  return choice;
}

bool decided(const std::vector<Chosen>& choice) {
  return std::find(choice.begin(), choice.end(), Chosen::open) == choice.end();
}

Choices::Choices(const std::vector<Chosen>& choice, Index K) : places_(K) {
  for (std::size_t i = 0; i < choice.size(); ++i) {
    if (choice[i] == Chosen::in) in_.push_back(static_cast<Index>(i)), --places_;
    if (choice[i] == Chosen::open) open_.push_back(static_cast<Index>(i));
  }
}

Index Choices::count() const {
  const Index open = std::ssize(open_);
  Index count = 1;
  for (Index i = 1; i <= std::min(places_, open - places_); ++i) {
    count = count * (open - i + 1) / i;
    if (count > kMostChoices) return kMostChoices;
  }
  return count;
}

std::vector<Index> Choices::possible() const {
  std::vector<Index> all = in_;
  all.insert(all.end(), open_.begin(), open_.end());
  return all;
}

void Choices::each(const std::function<void(const std::vector<Index>&)>& take) const {
  std::vector<bool> taken(open_.size(), false);
  std::fill_n(taken.begin(), places_, true);
  do {
    std::vector<Index> chosen = in_;
    for (std::size_t i = 0; i < open_.size(); ++i) {
      if (taken[i]) chosen.push_back(open_[i]);
    }
    take(chosen);
  } while (std::prev_permutation(taken.begin(), taken.end()));
}

bool allows(const std::vector<Chosen>& choice, const Matrix<Index>& chosen) {
  std::vector<bool> taken(choice.size(), false);
  for (Index r = 0; r < chosen.cols(); ++r) taken[static_cast<std::size_t>(chosen(0, r))] = true;
  for (std::size_t i = 0; i < choice.size(); ++i) {
    if (choice[i] == (taken[i] ? Chosen::out : Chosen::in)) return false;
  }
  return true;
}

Matrix<Index> choice_of_weights(const std::vector<Chosen>& choice, const Matrix<double>& weights, Index K) {
  Matrix<Index> none = Matrix<Index>::Constant(1, K, -1);
  if (decided(choice)) return none;
  std::vector<Index> chosen;
  for (Index i = 0; i < weights.cols(); ++i) {
    if (weights(0, i) != 0.0) chosen.push_back(i);
  }
  if (std::ssize(chosen) != K) return none;
  std::stable_sort(chosen.begin(), chosen.end(),
                   [&](Index i, Index j) { return weights(0, i) > weights(0, j); });
  Matrix<Index> row(1, K);
  for (Index r = 0; r < K; ++r) row(0, r) = chosen[static_cast<std::size_t>(r)];
  return allows(choice, row) ? row : none;
}

bool is_chosen(const Call& call, Index token) {
  return call.choice != nullptr && call.choice->cols() > 0 && (*call.choice)(token, 0) >= 0;
}

Matrix<Index> as_chosen(const Call& call, Matrix<Index> own) {
  for (Index t = 0; t < own.rows(); ++t) {
    if (is_chosen(call, t)) own.row(t) = call.choice->row(t);
  }
  return own;
}

Matrix<Running> certain_weights(const Matrix<Running>& probabilities, const std::vector<Chosen>& choice,
                                Index K) {
  // Among the open ones the most probable, and among equals the first.
  std::vector<bool> exactly(choice.size());
  std::vector<std::size_t> open;
  Index places = K;
  for (std::size_t i = 0; i < choice.size(); ++i) {
    exactly[i] = choice[i] == Chosen::in;
    if (exactly[i]) --places;
    if (choice[i] == Chosen::open) open.push_back(i);
  }
  std::stable_sort(open.begin(), open.end(), [&](std::size_t i, std::size_t j) {
    return probabilities(0, static_cast<Index>(i)) > probabilities(0, static_cast<Index>(j));
  });
  for (Index i = 0; i < places; ++i) exactly[open[static_cast<std::size_t>(i)]] = true;
  return certain_weights(probabilities, choice, exactly);
}

Matrix<Running> certain_weights(const Matrix<Running>& probabilities, const std::vector<Chosen>& choice,
                                const std::vector<bool>& exactly, const Running& scaling) {
  const Index N = probabilities.cols();
  const auto of = [&](Index i) { return choice[static_cast<std::size_t>(i)]; };
  Running sum(0.0);
  double exact = 0.0;  // sum of the open ones that were chosen
  Index places = 0;    // places shared by the open ones
  std::vector<double> lows;
  std::vector<double> highs;
  for (Index i = 0; i < N; ++i) {
    const Running& p = probabilities(0, i);
    if (of(i) == Chosen::in) {
      sum += p;
    } else if (of(i) == Chosen::open) {
      lows.push_back(lowest(p));
      highs.push_back(highest(p));
      if (!exactly[static_cast<std::size_t>(i)]) continue;
      ++places;
      exact += p.value();
    }
  }
  if (places > 0) {
    const double error = std::max(sum_of_first(highs, places, std::greater<>()) - exact,
                                  exact - sum_of_first(lows, places, std::less<>()));
    const auto each = static_cast<double>(places);
    for (Index i = 0; i < places; ++i) sum += Running::within(exact / each, error / each);
  }
  const Running factor = scaling / sum;
  Matrix<Running> weights = Matrix<Running>::Constant(1, N, Running(0.0));
  for (Index i = 0; i < N; ++i) {
    if (of(i) != Chosen::out)
      weights(0, i) = scaling.is_one() ? probabilities(0, i) / sum : probabilities(0, i) * factor;
  }
  weights = stored(std::move(weights), points::open_routing["weights"]);
  for (Index i = 0; i < N; ++i) {
    const Running& w = weights(0, i);
    if (of(i) != Chosen::open) continue;
    const bool chosen = exactly[static_cast<std::size_t>(i)];
    weights(0, i) = Running::within(chosen ? w.value() : 0.0, std::abs(w.value()) + w.error()).made_of(w);
  }
  return weights;
}

}  // namespace samestate

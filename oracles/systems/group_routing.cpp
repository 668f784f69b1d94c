#include "oracles/systems/group_routing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <tuple>

namespace samestate {
namespace {

using Places = std::vector<std::size_t>;

/// The numbers that a number was computed from, if that is known without an error: numbers with the same
/// origin are equal in any kernel.
struct Origin {
  enum class Kind { unknown, logit, score };
  Kind kind = Kind::unknown;
  double value = 0.0;
  double bias = 0.0;

  [[nodiscard]] bool is(const Origin& other) const {
    return kind != Kind::unknown &&
           std::tie(kind, value, bias) == std::tie(other.kind, other.value, other.bias);
  }
};

struct Ranked {
  double value = 0.0, low = 0.0, high = 0.0;
  Origin origin;
};

/// The values by which experts are compared.
std::vector<Ranked> choices_of(const Matrix<Running>& logits, const Matrix<Running>& scores,
                               const Vector<Running>& bias) {
  std::vector<Ranked> out;
  out.reserve(static_cast<std::size_t>(scores.cols()));
  for (Index i = 0; i < scores.cols(); ++i) {
    const Running choice = bias.size() == 0 ? scores(0, i) : scores(0, i) + bias(i);
    const double error = choice.error();
    Ranked one{choice.value(), choice.value() - error, choice.value() + error, {}};
    if (bias.size() != 0) one.origin.bias = bias(i).value();
    if (logits(0, i).error() == 0.0) {
      one.origin.kind = Origin::Kind::logit, one.origin.value = logits(0, i).value();
    } else if (scores(0, i).error() == 0.0) {
      one.origin.kind = Origin::Kind::score, one.origin.value = scores(0, i).value();
    }
    out.push_back(one);
  }
  return out;
}

/// True if `a` is certainly not less than `b`.
bool holds_against(const Ranked& a, const Ranked& b) { return a.low > b.high || a.origin.is(b.origin); }

/// The score of one group and its origin: the origins of its two largest, if no other expert may be one of
/// them.
struct GroupScore {
  double low = 0.0, high = 0.0;
  std::array<Origin, 2> of;

  [[nodiscard]] bool is(const GroupScore& other) const {
    return (of[0].is(other.of[0]) && of[1].is(other.of[1])) ||
           (of[0].is(other.of[1]) && of[1].is(other.of[0]));
  }
};

GroupScore score_of(const std::vector<Ranked>& all, std::size_t begin, std::size_t width) {
  GroupScore score;
  if (width == 1) {
    const Ranked& only = all[begin];
    score.low = only.low, score.high = only.high;
    score.of = {only.origin, only.origin};
    return score;
  }
  std::vector<double> lows, highs;
  Places order(width);
  std::iota(order.begin(), order.end(), begin);
  for (const std::size_t i : order) lows.push_back(all[i].low), highs.push_back(all[i].high);
  for (std::vector<double>* ends : {&lows, &highs})
    std::partial_sort(ends->begin(), ends->begin() + 2, ends->end(), std::greater<>());
  score.low = lows[0] + lows[1], score.high = highs[0] + highs[1];
  const double rounding = detail::running_model().unit * std::max(std::abs(score.low), std::abs(score.high));
  score.low -= rounding, score.high += rounding;
  std::partial_sort(order.begin(), order.begin() + 2, order.end(),
                    [&](std::size_t i, std::size_t j) { return all[i].value > all[j].value; });
  const Ranked &first = all[order[0]], &second = all[order[1]];
  const bool certain = std::all_of(order.begin() + 2, order.end(), [&](std::size_t i) {
    return holds_against(first, all[i]) && holds_against(second, all[i]);
  });
  if (certain) score.of = {first.origin, second.origin};
  return score;
}

std::vector<Chosen> certain_groups(const std::vector<GroupScore>& scores, std::size_t kept) {
  const std::size_t G = scores.size();
  const auto before = [&](std::size_t g, std::size_t h) {
    return scores[g].low > scores[h].high || (g < h && scores[g].is(scores[h]));
  };
  std::vector<Chosen> out(G, Chosen::open);
  for (std::size_t g = 0; g < G; ++g) {
    std::size_t above = 0, below = 0;
    for (std::size_t h = 0; h < G; ++h) {
      above += before(h, g) ? 1 : 0;
      below += before(g, h) ? 1 : 0;
    }
    if (above >= kept) out[g] = Chosen::out;
    if (below >= G - kept) out[g] = Chosen::in;
  }
  return out;
}

}  // namespace

std::vector<Chosen> certain_group_choice(const Matrix<Running>& logits, const Matrix<Running>& scores,
                                         const Vector<Running>& bias, const GroupLimit& limit) {
  const std::vector<Ranked> all = choices_of(logits, scores, bias);
  const auto G = static_cast<std::size_t>(limit.groups), kept = static_cast<std::size_t>(limit.kept);
  const auto K = static_cast<std::size_t>(limit.chosen);
  const std::size_t width = all.size() / G;
  std::vector<GroupScore> of_groups;
  for (std::size_t g = 0; g < G; ++g) of_groups.push_back(score_of(all, g * width, width));
  const std::vector<Chosen> group = certain_groups(of_groups, kept);
  const auto certain = static_cast<std::size_t>(std::count(group.begin(), group.end(), Chosen::in));
  const auto before = [&](std::size_t i, std::size_t j) {
    return all[i].low > all[j].high || (i < j && all[i].origin.is(all[j].origin));
  };
  std::vector<Chosen> out(all.size(), Chosen::open);
  Places open_rivals;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t own = i / width;
    if (group[own] == Chosen::out) {
      out[i] = Chosen::out;
      continue;
    }
    std::size_t above = 0;  // if its own group is kept
    std::size_t rivals = 0;
    open_rivals.clear();
    for (std::size_t h = 0; h < G; ++h) {
      if (group[h] == Chosen::out) continue;
      std::size_t sure = 0, possible = 0;
      for (std::size_t j = h * width; j < (h + 1) * width; ++j) {
        sure += before(j, i) ? 1 : 0;
        possible += j != i && !before(i, j) ? 1 : 0;
      }
      if (group[h] == Chosen::in || h == own) above += sure;
      if (group[h] == Chosen::in)
        rivals += possible;
      else
        open_rivals.push_back(possible);
    }
    std::sort(open_rivals.begin(), open_rivals.end(), std::greater<>());
    for (std::size_t r = 0; r < std::min(open_rivals.size(), kept - certain); ++r) rivals += open_rivals[r];
    if (above >= K) {
      out[i] = Chosen::out;
    } else if (group[own] == Chosen::in && rivals < K) {
      out[i] = Chosen::in;
    }
  }
  return out;
}

}  // namespace samestate

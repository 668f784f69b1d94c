#include "optimized/cpu/operators/group_limited_router.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "optimized/call.h"
#include "optimized/cpu/operators/tensor.h"

namespace samestate::cpu {
namespace {

constexpr std::int64_t kTile = 32;  // tokens that a task processes at a time
// A sum of scores below this is close to values that underflow in fp32.
constexpr float kLeastSum = 0x1p-100F;

/// Keeps the first `places` of the indices shown to it: larger values come first, and of equal values the
/// earlier one.
class Leaders {
 public:
  explicit Leaders(std::int64_t places) : places_(static_cast<std::size_t>(places)) {}
  void clear() { index_.clear(), value_.clear(); }
  void show(std::int64_t index, float value) {
    std::size_t at = index_.size();
    while (at > 0 && value_[at - 1] < value) --at;
    if (at == places_) return;
    index_.insert(index_.begin() + static_cast<std::ptrdiff_t>(at), index);
    value_.insert(value_.begin() + static_cast<std::ptrdiff_t>(at), value);
    if (index_.size() > places_) index_.pop_back(), value_.pop_back();
  }
  [[nodiscard]] const std::vector<std::int64_t>& index() const { return index_; }

 private:
  std::size_t places_;
  std::vector<std::int64_t> index_;
  std::vector<float> value_;
};

/// Routes one token at a time.
class GroupRouting {
 public:
  GroupRouting(std::int64_t N, std::int64_t G, std::int64_t M, std::int64_t K, const float* bias)
      : width_(N / G), bias_(bias), scores_(static_cast<std::size_t>(N)), groups_(M), experts_(K) {}

  [[nodiscard]] const std::vector<float>& scores() const { return scores_; }

  /// Computes the weights of all N experts.
  void route(const float* logits, float scaling, float* weights) {
    const std::int64_t N = std::ssize(scores_);
    groups_.clear();
    for (std::int64_t first = 0; first < N; first += width_) {
      float best = -std::numeric_limits<float>::infinity(), next = best;
      for (std::int64_t i = first; i < first + width_; ++i) {
        scores_[static_cast<std::size_t>(i)] = 1.0F / (1.0F + std::exp(-logits[i]));
        const float c = choice(i);
        next = std::max(next, std::min(best, c));
        best = std::max(best, c);
      }
      groups_.show(first, width_ == 1 ? best : best + next);
    }
    experts_.clear();
    // The groups are not yet in order of index, but of two equal values the lower index must be seen first.
    kept_ = groups_.index();
    std::ranges::sort(kept_);
    for (const std::int64_t first : kept_) {
      for (std::int64_t i = first; i < first + width_; ++i) experts_.show(i, choice(i));
    }
    float sum = 0.0F;
    for (const std::int64_t i : experts_.index()) sum += scores_[static_cast<std::size_t>(i)];
    std::fill_n(weights, N, 0.0F);
    if (sum >= kLeastSum) {
      for (const std::int64_t i : experts_.index())
        weights[i] = scores_[static_cast<std::size_t>(i)] * (scaling / sum);
      return;
    }
    // s = e^l / (1 + e^l), where e^l is far below the last place of 1.
    float largest = -std::numeric_limits<float>::infinity();
    for (const std::int64_t i : experts_.index()) largest = std::max(largest, logits[i]);
    sum = 0.0F;
    for (const std::int64_t i : experts_.index()) sum += weights[i] = std::exp(logits[i] - largest);
    for (const std::int64_t i : experts_.index()) weights[i] *= scaling / sum;
  }

 private:
  [[nodiscard]] float choice(std::int64_t i) const {
    const float s = scores_[static_cast<std::size_t>(i)];
    return bias_ == nullptr ? s : s + bias_[i];
  }

  std::int64_t width_;
  const float* bias_;
  std::vector<float> scores_;
  Leaders groups_;  ///< the groups, by their first expert
  Leaders experts_;
  std::vector<std::int64_t> kept_;
};

}  // namespace

Outcome group_limited_router_ordered(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t N = call.parameter("N");
  const std::int64_t tiles = (call.tokens + kTile - 1) / kTile;
  const float* bias = call.parameter("bias") == 1 ? call.input("selection_bias").data : nullptr;
  const float scaling = call.input("scaling").data[0];
  Block router;
  copy_transposed(rows_of(call.input("router"), 0, false), router);
  for_each_task(call.batch * tiles, call.threads, [&] {
    return [&, x = Block{}, logits = Block{},
            routing = GroupRouting(N, call.parameter("G"), call.parameter("M"), call.parameter("K"), bias),
            weights = std::vector<float>(static_cast<std::size_t>(N))](std::int64_t task) mutable {
      const std::int64_t b = task / tiles;
      const std::int64_t begin = task % tiles * kTile;
      copy(rows_of(call.input("x"), b).rows(begin, std::min(kTile, call.tokens - begin)), x);
      project(x, router, logits, MatrixUnit::of(contract));
      for (std::int64_t i = 0; i < x.rows; ++i) {
        float* l = logits.row(i);
        const auto store = [&](std::string_view name, const float* row) {
          round_values(row, rows_of(call.output(name), b).row(begin + i), N, contract.output);
        };
        round_values(l, l, N, contract.input);
        routing.route(l, scaling, weights.data());
        store("logits", l);
        store("probabilities", routing.scores().data());
        store("weights", weights.data());
      }
    };
  });
  return {};
}

}  // namespace samestate::cpu

#pragma once

#include <cstdint>

#include "optimized/cuda/experts/routing.cuh"
#include "optimized/cuda/units/bits.cuh"

/// Experts out of the best groups (EQUATIONS 5.8): a warp a token, whose choices lie in registers, two groups a lane.
namespace samestate::cuda {

template <class Operand>
struct GroupRoutingParameters {
  const Operand* logits = nullptr;  ///< [tokens, experts]
  const float* bias = nullptr;      ///< [experts]; null if there is none
  const float* scaling = nullptr;   ///< [1]
  std::int64_t tokens = 0;
  int experts = 1;
  int groups = 1;  ///< 64 at most
  int kept = 1;
  int chosen = 1;
  Operand* probabilities = nullptr;  ///< [tokens, experts]
  Operand* weights = nullptr;        ///< [tokens, experts], 0 where not chosen
};

/// Finds the two largest numbers of a DescendingOrder in each group, one group after another by the whole
/// warp, and then the groups that are kept.
class KeptGroups {
 public:
  /// The sums of the groups' two largest, of groups of one the largest.
  template <int slots, int n>
  SAMESTATE_DEVICE void score(const DescendingOrder<slots, n>& order, int groups, int width) {
    SAMESTATE_NO_UNROLL
    for (int group = 0; group < groups; ++group) {
      std::uint32_t best = 0, next = 0;
      SAMESTATE_UNROLL
      for (int s = 0; s < slots; ++s) {
        const auto member = static_cast<unsigned>(expert_of<n>(s, lane_index()) - group * width);
        const std::uint32_t x = member < static_cast<unsigned>(width) ? order.at(s) : 0;
        const std::uint32_t less = x < best ? x : best;
        next = next < less ? less : next;
        best = best < x ? x : best;
      }
      const std::uint32_t most = warp_largest(best);
      const bool mine = best == most;
      const std::uint32_t owners = ballot(mine);
      const std::uint32_t other = warp_largest(mine ? next : best);
      // Two lanes that have the largest have the second largest too.
      const std::uint32_t second = (owners & (owners - 1U)) != 0 ? most : other;
      const float sum = width == 1 ? value_of(most) : value_of(most) + value_of(second);
      if (group % 32 == lane_index()) (group < 32 ? low_ : high_) = sum;
    }
  }
  /// Keeps `kept` of them: those that fewer precede, larger ones or as large ones of a lower number.
  SAMESTATE_DEVICE void keep(int groups, int kept) {
    const int lane = lane_index();
    int before_low = 0, before_high = 0;
    SAMESTATE_NO_UNROLL
    for (int group = 0; group < groups; ++group) {
      const float x = shuffle(group < 32 ? low_ : high_, group % 32);
      before_low += x > low_ || (x == low_ && group < lane) ? 1 : 0;
      before_high += x > high_ || (x == high_ && group < lane + 32) ? 1 : 0;
    }
    kept_low_ = ballot(lane < groups && before_low < kept);
    kept_high_ = ballot(lane + 32 < groups && before_high < kept);
  }
  [[nodiscard]] SAMESTATE_DEVICE bool has(int group) const {
    return ((group < 32 ? kept_low_ : kept_high_) >> (group % 32) & 1U) != 0;
  }

 private:
  float low_ = 0.0F, high_ = 0.0F;  ///< scores of groups `lane` and `lane + 32`
  std::uint32_t kept_low_ = 0, kept_high_ = 0;
};

/// p = sigma(logits), w = scaling p / sum p over the K largest p + bias of the groups kept, all experts of both.
template <class Operand, int slots, int n>
struct GroupRoutedToken {
  using Parameters = GroupRoutingParameters<Operand>;
  using Elements = Vector<Operand, n>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return p.tokens; }

  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t token) {
    const Operand* const logits = p.logits + token * p.experts;
    const int lane = lane_index();
    float share[slots];
    DescendingOrder<slots, n> order;
    SAMESTATE_UNROLL
    for (int s = 0; s < slots; s += n) {
      const int expert = expert_of<n>(s, lane);
      const bool there = expert < p.experts;
      const Elements x = logits_from<Operand, n>(logits, expert, there);
      float probability[n];
      SAMESTATE_UNROLL
      for (int i = 0; i < n; ++i) {
        // This does not use the special function unit: the choice between two experts depends on it, whatever
        // the result is rounded to.
        share[s + i] = probability[i] = logistic(element(x, i));
        const float bias = there && p.bias != nullptr ? p.bias[expert + i] : 0.0F;
        order.put(s + i, there ? order_of(share[s + i] + bias) : 0);
      }
      if (there) {
        store_result<false>(reinterpret_cast<Elements*>(p.probabilities + token * p.experts + expert),
                            narrowed<Operand>(probability));
      }
    }
    if (p.kept < p.groups) {
      const int width = p.experts / p.groups;
      KeptGroups groups;
      groups.score(order, p.groups, width);
      groups.keep(p.groups, p.kept);
      SAMESTATE_UNROLL
      for (int s = 0; s < slots; ++s) {
        if (!groups.has(expert_of<n>(s, lane) / width)) order.put(s, 0);
      }
    }
    (void)order.begin();
    std::uint32_t taken = 0, ignored;
    for (int rank = 0; rank < p.chosen; ++rank) (void)order.take(ignored, taken);
    float sum = sum_of(share, taken);
    // Scores next to those that fp32 has no number for: e^l / (1 + e^l) with e^l far below the last place of 1, and whatever
    // factor they have in common.
    constexpr float kLeastSum = 0x1p-100F;
    if (!(sum >= kLeastSum)) {
      std::uint32_t most = 0;
      SAMESTATE_UNROLL
      for (int s = 0; s < slots; ++s) {
        if ((taken >> s & 1U) == 0) continue;
        share[s] = widen(logits[expert_of<n>(s, lane)]);
        most = most < order_of(share[s]) ? order_of(share[s]) : most;
      }
      const float largest = value_of(warp_largest(most));
      SAMESTATE_UNROLL
      for (int s = 0; s < slots; ++s) {
        if ((taken >> s & 1U) != 0) share[s] = exponential(share[s] - largest);
      }
      sum = sum_of(share, taken);
    }
    const float factor = p.scaling[0] / sum;
    SAMESTATE_UNROLL
    for (int s = 0; s < slots; s += n) {
      const int expert = expert_of<n>(s, lane);
      if (expert >= p.experts) continue;
      float weight[n];
      SAMESTATE_UNROLL
      for (int i = 0; i < n; ++i) weight[i] = (taken >> (s + i) & 1U) != 0 ? share[s + i] * factor : 0.0F;
      store_result<false>(reinterpret_cast<Elements*>(p.weights + token * p.experts + expert),
                          narrowed<Operand>(weight));
    }
  }

 private:
  /// Returns the sum over those taken.
  static SAMESTATE_DEVICE float sum_of(const float (&share)[slots], std::uint32_t taken) {
    float sum = 0.0F;
    SAMESTATE_UNROLL
    for (int s = 0; s < slots; ++s) sum += (taken >> s & 1U) != 0 ? share[s] : 0.0F;
    return warp_sum(sum);
  }
};

template <class Operand>
void route_tokens_in_groups(const GroupRoutingParameters<Operand>& p, cudaStream_t stream) {
  with_slots<Operand>(p.experts, [&]<int slots, int n>() {
    EachWarp<GroupRoutedToken<Operand, slots, n>>::launch(p, stream);
  });
}

}  // namespace samestate::cuda

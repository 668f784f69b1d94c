#pragma once

#include <cstdint>
#include <type_traits>

#include "optimized/cuda/host/grid.cuh"
#include "optimized/cuda/pointwise/pointwise.cuh"
#include "optimized/cuda/units/warp_extremes.cuh"

/// Which experts a token goes to (EQ-20, MOE-13 to MOE-15) and how they are loaded (MOE-6): a warp a token, whose logits lie in
/// registers.
namespace samestate::cuda {

/// The expert of a slot of a lane, `n` adjacent ones by one access.
template <int n>
SAMESTATE_DEVICE int expert_of(int slot, int lane) {
  return (slot / n * 32 + lane) * n + slot % n;
}

/// Numbers by which experts are chosen (order_of; 0 for none), `slots` per lane. A warp takes them in
/// descending order, and of equal ones the expert with the lower number: each round looks at all. All are put
/// before `begin`, and `begin` is called before `take`.
template <int slots, int n>
class DescendingOrder {
 public:
  SAMESTATE_DEVICE void put(int slot, std::uint32_t order) { order_[slot] = order; }
  [[nodiscard]] SAMESTATE_DEVICE std::uint32_t at(int slot) const { return order_[slot]; }
  /// The largest of the warp.
  SAMESTATE_DEVICE std::uint32_t begin() {
    find_best();
    return warp_largest(best_);
  }
  /// The next and its expert, in every lane; to `taken` of the lane that had it the slot's bit.
  SAMESTATE_DEVICE int take(std::uint32_t& most, std::uint32_t& taken) {
    most = warp_largest(best_);
    const std::uint32_t mine =
        best_ == most ? static_cast<std::uint32_t>(expert_of<n>(best_slot_, lane_index())) : 0xffffffffU;
    const std::uint32_t chosen = warp_least(mine);
    if (mine == chosen) {
      taken |= 1U << best_slot_;
      SAMESTATE_UNROLL
      for (int s = 0; s < slots; ++s) order_[s] = s == best_slot_ ? 0 : order_[s];
      find_best();
    }
    return static_cast<int>(chosen);
  }

 private:
  SAMESTATE_DEVICE void find_best() {
    best_ = 0;
    best_slot_ = 0;
    SAMESTATE_UNROLL
    for (int s = 0; s < slots; ++s) {
      if (order_[s] > best_) best_ = order_[s], best_slot_ = s;
    }
  }

  std::uint32_t order_[slots];  ///< 0 if there is none, or it is taken
  std::uint32_t best_ = 0;      ///< the best of them, and its slot
  int best_slot_ = 0;
};

/// fp32 logits of a token in a warp. `load` before `begin` before `take`.
template <class Operand, int slots, int n>
class ScannedLogits {
 public:
  SAMESTATE_DEVICE void load(int slot, const Vector<Operand, n>& some, bool there) {
    SAMESTATE_UNROLL
    for (int i = 0; i < n; ++i) {
      logit_[slot + i] = element(some, i);
      order_.put(slot + i, there ? order_of(logit_[slot + i]) : 0);
    }
  }
  /// The largest of the warp.
  SAMESTATE_DEVICE float begin() { return value_of(order_.begin()); }
  /// The next, in every lane; to `taken` of the lane that had it the slot's bit.
  SAMESTATE_DEVICE int take(float& logit, std::uint32_t& taken) {
    std::uint32_t most;
    const int expert = order_.take(most, taken);
    logit = value_of(most);
    return expert;
  }
  [[nodiscard]] SAMESTATE_DEVICE float logit(int slot) const { return logit_[slot]; }

 private:
  float logit_[slots];
  DescendingOrder<slots, n> order_;
};

/// The same for bf16 logits, two per word. A key holds a logit and its expert, so that the largest of a warp
/// is the choice, ties included. A lane keeps its four largest keys, sorted, and rarely has to look for the
/// next four once these have been taken.
template <int slots, int n>
class SortedLogits {
 public:
  SAMESTATE_DEVICE void load(int slot, const Vector<Bf16, n>& some, bool there) {
    if constexpr (n == 1) {
      const std::uint32_t half = there ? some.words[0] + 0U : kNone & 0xffffU;
      pairs_[slot / 2] = slot % 2 == 0 ? half | kNone << 16 : (pairs_[slot / 2] & 0xffffU) | half << 16;
    } else {
      SAMESTATE_UNROLL
      for (int i = 0; i < n / 2; ++i) pairs_[slot / 2 + i] = there ? some.words[i] : kNone;
    }
  }
  SAMESTATE_DEVICE float begin() {
    find_largest<false>(0);
    return value(warp_largest(kept_[0]));
  }
  SAMESTATE_DEVICE int take(float& logit, std::uint32_t& taken) {
    const std::uint32_t most = warp_largest(kept_[0]);
    const auto expert = static_cast<int>(0xffffU - (most & 0xffffU));
    logit = value(most);
    const bool mine = kept_[0] == most;
    if (mine) taken |= 1U << (expert / (32 * n) * n + expert % n);
    SAMESTATE_UNROLL
    for (int s = 0; s < kKept; ++s) kept_[s] = !mine ? kept_[s] : s + 1 < kKept ? kept_[s + 1] : 0;
    if (mine && kept_[0] == 0) find_largest<true>(most);
    return expert;
  }
  [[nodiscard]] SAMESTATE_DEVICE float logit(int slot) const {
    const std::uint32_t pair = pairs_[slot / 2];
    return float_of(slot % 2 == 0 ? pair << 16 : pair & 0xffff0000U);
  }

 private:
  static constexpr int kKept = 4;
  static constexpr std::uint32_t kNone = 0xffffffffU;  ///< no number, below all others in the order
  static_assert(slots % kKept == 0);

  static SAMESTATE_DEVICE float value(std::uint32_t key) {
    const std::uint32_t order = key & 0xffff0000U;
    return float_of((key >> 31) != 0 ? order & 0x7fffffffU : 0U - order);
  }
  /// Returns the keys of the logits of slots 2 i and 2 i + 1: a key is larger if its logit is, and for equal
  /// logits if its expert's number is lower.
  SAMESTATE_DEVICE void keys_of(int i, std::uint32_t& even, std::uint32_t& odd) const {
    // 2^15 plus the number's bits, minus those of a negative one: both zeros the same.
    const std::uint32_t negative = pairs_[i] >> 15 & 0x00010001U;
    const std::uint32_t order = (pairs_[i] ^ negative * 0x7fffU ^ 0x80008000U) + negative;
    const auto first = static_cast<std::uint32_t>(expert_of<n>(2 * i, 0));
    const auto second = static_cast<std::uint32_t>(expert_of<n>(2 * i + 1, 0));
    const std::uint32_t behind =
        0xffffffffU - static_cast<std::uint32_t>(lane_index() * n) * 0x10001U - (second << 16 | first);
    even = order << 16 | (behind & 0xffffU);
    odd = (order & 0xffff0000U) | behind >> 16;
  }
  static SAMESTATE_DEVICE void descend(std::uint32_t& a, std::uint32_t& b) {
    const std::uint32_t less = a < b ? a : b;
    a = a < b ? b : a;
    b = less;
  }
  /// The four largest, of those below `limit` alone where `limited`.
  template <bool limited>
  SAMESTATE_DEVICE void find_largest(std::uint32_t limit) {
    SAMESTATE_UNROLL
    for (int i = 0; i < slots / kKept; ++i) {
      std::uint32_t some[kKept];
      keys_of(2 * i, some[0], some[1]);
      keys_of(2 * i + 1, some[2], some[3]);
      SAMESTATE_UNROLL
      for (int s = 0; limited && s < kKept; ++s) some[s] = some[s] < limit ? some[s] : 0;
      descend(some[0], some[1]);
      descend(some[2], some[3]);
      descend(some[0], some[2]);
      descend(some[1], some[3]);
      descend(some[1], some[2]);
      if (i == 0) {
        SAMESTATE_UNROLL
        for (int s = 0; s < kKept; ++s) kept_[s] = some[s];
        continue;
      }
      // The four largest of both rise and fall; two steps sort them.
      SAMESTATE_UNROLL
      for (int s = 0; s < kKept; ++s)
        kept_[s] = kept_[s] < some[kKept - 1 - s] ? some[kKept - 1 - s] : kept_[s];
      descend(kept_[0], kept_[2]);
      descend(kept_[1], kept_[3]);
      descend(kept_[0], kept_[1]);
      descend(kept_[2], kept_[3]);
    }
  }

  std::uint32_t pairs_[slots / 2];
  std::uint32_t kept_[kKept];  ///< descending; 0 for none
};

/// The n logits from `expert` on; zeros where there are none.
template <class Operand, int n>
SAMESTATE_DEVICE Vector<Operand, n> logits_from(const Operand* logits, int expert, bool there) {
  if constexpr (n == 1) {
    Vector<Operand, n> x{};
    if (there) x = *reinterpret_cast<const Vector<Operand, n>*>(logits + expert);
    return x;
  } else {
    return load_settled<false>(reinterpret_cast<const Vector<Operand, n>*>(logits + expert), there);
  }
}

/// A token's N logits in a warp, `slots` a lane, n adjacent ones by one access; n divides N. The choice is that of the logits as
/// they are stored, of equal ones the expert with the lower number.
template <class Operand, int slots, int n>
struct TokenLogits {
  float power[slots];  ///< e^(logit - largest), 0 if there is none; set by `weigh`
  float largest = 0.0F;
  std::uint32_t taken = 0;  ///< a bit a slot

  static SAMESTATE_DEVICE int expert(int slot) { return expert_of<n>(slot, lane_index()); }

  SAMESTATE_DEVICE void load(const Operand* logits, int experts) {
    SAMESTATE_UNROLL
    for (int s = 0; s < slots; s += n) {
      const bool there = expert(s) < experts;
      ordered_.load(s, logits_from<Operand, n>(logits, expert(s), there), there);
    }
    largest = ordered_.begin();
  }

  /// The next expert by descending logit, in every lane; `logit` is its own.
  SAMESTATE_DEVICE int choose(float& logit) { return ordered_.take(logit, taken); }

  [[nodiscard]] SAMESTATE_DEVICE float power_of(float logit) const {
    return exponential_for<Operand>(logit - largest);
  }

  /// Makes the powers, after all were chosen; 1 / their sum.
  SAMESTATE_DEVICE float weigh(int experts) {
    float sum = 0.0F;
    SAMESTATE_UNROLL
    for (int s = 0; s < slots; ++s) {
      power[s] = expert(s) < experts ? power_of(ordered_.logit(s)) : 0.0F;
      sum += power[s];
    }
    return 1.0F / warp_sum(sum);
  }

 private:
  std::conditional_t<sizeof(Operand) == 2, SortedLogits<slots, n>, ScannedLogits<Operand, slots, n>> ordered_;
};

template <class Operand>
struct RoutingParameters {
  const Operand* logits = nullptr;  ///< [tokens, experts]
  std::int64_t tokens = 0;
  int experts = 1;
  int chosen = 1;
  Operand* probabilities = nullptr;  ///< [tokens, experts]
  Operand* weights = nullptr;        ///< [tokens, experts], 0 where not chosen
  std::int32_t* choice = nullptr;  ///< [tokens, chosen] by descending logit, and their weights in the format
  float* share = nullptr;
};

/// p = softmax(logits), w = softmax over the chosen, all experts of both; or, where `listed`, the chosen alone.
template <class Operand, int slots, int n, bool listed>
struct RoutedToken {
  using Parameters = RoutingParameters<Operand>;
  static constexpr int kListed = 2;  ///< a lane: 64 experts a token
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return p.tokens; }

  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t token) {
    TokenLogits<Operand, slots, n> logits;
    logits.load(p.logits + token * p.experts, p.experts);
    const int lane = lane_index();
    float sum = 0.0F;
    float share[kListed] = {};
    int choice[kListed] = {};
    for (int rank = 0; rank < p.chosen; ++rank) {
      float logit;
      const int expert = logits.choose(logit);
      const float power = logits.power_of(logit);
      sum += power;
      SAMESTATE_UNROLL
      for (int i = 0; i < kListed; ++i) {
        if (listed && rank == 32 * i + lane) choice[i] = expert, share[i] = power;
      }
    }
    const float of_chosen = 1.0F / sum;
    if constexpr (listed) {
      SAMESTATE_UNROLL
      for (int i = 0; i < kListed; ++i) {
        const int rank = 32 * i + lane;
        if (rank >= p.chosen) continue;
        p.choice[token * p.chosen + rank] = choice[i];
        p.share[token * p.chosen + rank] = widen(narrow<Operand>(share[i] * of_chosen));
      }
      return;
    }
    const float of_all = logits.weigh(p.experts);
    SAMESTATE_UNROLL
    for (int s = 0; s < slots; s += n) {
      if (logits.expert(s) >= p.experts) continue;
      const std::int64_t at = token * p.experts + logits.expert(s);
      float probability[n], weight[n];
      SAMESTATE_UNROLL
      for (int i = 0; i < n; ++i) {
        probability[i] = logits.power[s + i] * of_all;
        weight[i] = (logits.taken >> (s + i) & 1U) != 0 ? logits.power[s + i] * of_chosen : 0.0F;
      }
      using Elements = Vector<Operand, n>;
      store_result<false>(reinterpret_cast<Elements*>(p.probabilities + at), narrowed<Operand>(probability));
      store_result<false>(reinterpret_cast<Elements*>(p.weights + at), narrowed<Operand>(weight));
    }
  }
};

/// A warp a token. In 16 bit four blocks a multiprocessor hide each other's chains of choices; in fp32 they would spill.
template <class Operand, int slots, int n, bool listed>
struct RoutedTokens : EachWarp<RoutedToken<Operand, slots, n, listed>> {
  using Parameters = RoutingParameters<Operand>;
  static constexpr int kThreads = 256;
  static constexpr int kResidentBlocks = sizeof(Operand) == 2 && slots <= 16 ? 4 : 1;
  static void launch(const Parameters& p, cudaStream_t stream) {
    cuda::launch<RoutedTokens>(blocks_of(p.tokens, kThreads / 32), 0, p, stream);
  }
};

/// `work.template operator()<slots, n>()` with what N experts need: 1024 at most.
template <class Operand, class Work>
void with_slots(int experts, Work&& work) {
  constexpr int n = 16 / static_cast<int>(sizeof(Operand));
  if (experts % n != 0) {
    experts <= 256 ? work.template operator()<8, 1>() : work.template operator()<32, 1>();
  } else if (experts <= 256) {
    work.template operator()<8, n>();
  } else {
    experts <= 512 ? work.template operator()<16, n>() : work.template operator()<32, n>();
  }
}

template <bool listed, class Operand>
void route_tokens(const RoutingParameters<Operand>& p, cudaStream_t stream) {
  with_slots<Operand>(
      p.experts, [&]<int slots, int n>() { RoutedTokens<Operand, slots, n, listed>::launch(p, stream); });
}

template <class Operand>
struct LoadParameters {
  const Operand* logits = nullptr;  ///< [batch, tokens, experts]
  const float* mask = nullptr;      ///< [batch, tokens]: 0 does not count
  const float* alpha = nullptr;     ///< [1]
  Operand* load = nullptr;          ///< [batch, experts], and mean
  Operand* mean = nullptr;
  Operand* loss = nullptr;  ///< [batch]
  std::int64_t batch = 0;
  std::int64_t tokens = 0;
  int experts = 1;
  int chosen = 1;
  bool per_token = false;
  std::int64_t part_tokens = 1;      ///< tokens of one block
  std::int64_t parts = 0;            ///< parts of a sequence
  std::int32_t* counted = nullptr;   ///< [batch, parts] tokens
  std::int32_t* assigned = nullptr;  ///< [batch, parts, experts] tokens, and sums of their probabilities
  float* sums = nullptr;
};

/// The contribution of a part of a sequence to each expert. Shared memory: [8, experts] counts, sums, then
/// tokens of the 8 warps.
template <class Operand, int slots, int n>
struct LoadOfPart {
  using Parameters = LoadParameters<Operand>;
  static constexpr int kThreads = 256, kWarps = kThreads / 32;
  static constexpr int kResidentBlocks = sizeof(Operand) == 2 && slots <= 16 ? 4 : 1;
  static std::size_t shared_bytes(const Parameters& p) {
    return (static_cast<std::size_t>(p.experts) * 8 + 4) * kWarps;
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    std::int32_t* const assigned = reinterpret_cast<std::int32_t*>(shared);
    float* const sums = reinterpret_cast<float*>(assigned + kWarps * p.experts);
    std::int32_t* const counted = assigned + 2 * kWarps * p.experts;
    for (std::int64_t part = block_index(); part < p.batch * p.parts; part += grid_blocks()) {
      const std::int64_t sequence = part / p.parts * p.tokens, first = part % p.parts * p.part_tokens;
      const std::int64_t end = first + p.part_tokens < p.tokens ? first + p.part_tokens : p.tokens;
      float sum[slots] = {};
      int mine = 0;
      std::int32_t* const of_warp = assigned + warp_index() * p.experts;
      for (int expert = lane_index(); expert < p.experts; expert += 32) of_warp[expert] = 0;
      warp_barrier();
      for (std::int64_t t = first + warp_index(); t < end; t += kWarps) {
        if (p.mask[sequence + t] == 0.0F) continue;
        ++mine;
        TokenLogits<Operand, slots, n> logits;
        logits.load(p.logits + (sequence + t) * p.experts, p.experts);
        float ignored;
        for (int rank = 0; rank < p.chosen; ++rank) {
          const int expert = logits.choose(ignored);
          if (lane_index() == 0) ++of_warp[expert];
        }
        const float of_all = logits.weigh(p.experts);
        SAMESTATE_UNROLL
        for (int s = 0; s < slots; ++s) sum[s] = fused(logits.power[s], of_all, sum[s]);
      }
      SAMESTATE_UNROLL
      for (int s = 0; s < slots; ++s) {
        const int expert = TokenLogits<Operand, slots, n>::expert(s);
        if (expert >= p.experts) continue;
        sums[warp_index() * p.experts + expert] = sum[s];
      }
      if (lane_index() == 0) counted[warp_index()] = mine;
      block_barrier();
      for (int expert = thread_index(); expert < p.experts; expert += kThreads) {
        int tokens = 0;
        float of_warps = 0.0F;
        for (int warp = 0; warp < kWarps; ++warp) {
          tokens += assigned[warp * p.experts + expert];
          of_warps += sums[warp * p.experts + expert];
        }
        p.assigned[part * p.experts + expert] = tokens;
        p.sums[part * p.experts + expert] = of_warps;
      }
      if (thread_index() == 0) {
        int tokens = 0;
        for (int warp = 0; warp < kWarps; ++warp) tokens += counted[warp];
        p.counted[part] = tokens;
      }
      block_barrier();
    }
  }
};

/// The parts added up, a block a sequence. Shared memory: a float a warp.
template <class Operand>
struct LoadOfSequence {
  using Parameters = LoadParameters<Operand>;
  static constexpr int kThreads = 512, kWarps = kThreads / 32;

  /// In the order of the parts, whose loads are under way eight at a time.
  template <class Load, class Add>
  static SAMESTATE_DEVICE void each_part(const Parameters& p, Load&& load, Add&& add) {
    constexpr int kAtOnce = 8;
    for (std::int64_t part = 0; part < p.parts; part += kAtOnce) {
      decltype(load(part)) some[kAtOnce]{};
      SAMESTATE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (part + i < p.parts) some[i] = load(part + i);
      }
      SAMESTATE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) add(some[i]);
    }
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    float* const overlaps = reinterpret_cast<float*>(shared);
    for (std::int64_t b = block_index(); b < p.batch; b += grid_blocks()) {
      std::int64_t counted = 0;
      each_part(
          p, [&](std::int64_t part) { return p.counted[b * p.parts + part]; },
          [&](std::int32_t of_part) { counted += of_part; });
      const auto whole = static_cast<float>(p.per_token ? counted : counted * p.chosen);
      float overlap = 0.0F;
      for (int expert = thread_index(); expert < p.experts; expert += kThreads) {
        std::int64_t assigned = 0;
        float sum = 0.0F;
        each_part(
            p, [&](std::int64_t part) { return p.assigned[(b * p.parts + part) * p.experts + expert]; },
            [&](std::int32_t of_part) { assigned += of_part; });
        each_part(
            p, [&](std::int64_t part) { return p.sums[(b * p.parts + part) * p.experts + expert]; },
            [&](float of_part) { sum += of_part; });
        const float load = static_cast<float>(assigned) / whole, mean = sum / static_cast<float>(counted);
        p.load[b * p.experts + expert] = narrow<Operand>(load);
        p.mean[b * p.experts + expert] = narrow<Operand>(mean);
        overlap = fused(load, mean, overlap);
      }
      overlap = warp_sum(overlap);
      if (lane_index() == 0) overlaps[warp_index()] = overlap;
      block_barrier();
      if (thread_index() == 0) {
        float sum = 0.0F;
        for (int warp = 0; warp < kWarps; ++warp) sum += overlaps[warp];
        p.loss[b] = narrow<Operand>(p.alpha[0] * static_cast<float>(p.experts) * sum);
      }
      block_barrier();
    }
  }
};

}  // namespace samestate::cuda

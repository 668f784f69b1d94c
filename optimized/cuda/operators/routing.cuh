#pragma once

#include <cstdint>
#include <type_traits>

#include "optimized/cuda/operators/grid.cuh"
#include "optimized/cuda/operators/warp_extremes.cuh"

/// Which experts a token goes to (EQ-20, MOE-13 to MOE-15) and how they are loaded (MOE-6): a warp a token, whose logits lie in
/// registers.
namespace samestate::cuda {

/// The expert of a slot of a lane, `n` adjacent ones by one access.
template <int n>
SAMESTATE_DEVICE int expert_of(int slot, int lane) {
  return (slot / n * 32 + lane) * n + slot % n;
}

/// Logits that a warp takes in descending order, of equal ones the expert with the lower number: `slots` a lane, of which each
/// round looks at all.
template <int slots, int n>
class ScannedOrder {
 public:
  SAMESTATE_DEVICE void put(int slot, float x, bool there) { order_[slot] = there ? order_of(x) : 0; }
  /// After all were put; the largest of the warp.
  SAMESTATE_DEVICE float begin() {
    find_best();
    return value_of(warp_largest(best_));
  }
  /// In every lane; to `taken` of the lane that had it the slot's bit.
  SAMESTATE_DEVICE int take(float& logit, std::uint32_t& taken) {
    const std::uint32_t most = warp_largest(best_);
    logit = value_of(most);
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

  std::uint32_t order_[slots];  ///< 0: none, or taken
  std::uint32_t best_ = 0;      ///< of them, and its slot
  int best_slot_ = 0;
};

/// The same of logits of 16 bits: a number holds the logit and its expert, so that the largest of a warp is the choice, ties and
/// all, and a lane sorts its own but once.
template <int slots, int n>
class SortedOrder {
 public:
  SAMESTATE_DEVICE void put(int slot, float x, bool there) {
    const std::uint32_t behind = 0xffffU - static_cast<std::uint32_t>(expert_of<n>(slot, lane_index()));
    key_[slot] = there ? (order_of(x) & 0xffff0000U) | behind : 0;
  }
  SAMESTATE_DEVICE float begin() {
    sort<1, 1>();
    return value(warp_largest(key_[0]));
  }
  SAMESTATE_DEVICE int take(float& logit, std::uint32_t& taken) {
    const std::uint32_t most = warp_largest(key_[0]);
    const auto expert = static_cast<int>(0xffffU - (most & 0xffffU));
    logit = value(most);
    const bool mine = key_[0] == most;
    if (mine) taken |= 1U << (expert / (32 * n) * n + expert % n);
    SAMESTATE_UNROLL
    for (int s = 0; s < slots; ++s) key_[s] = !mine ? key_[s] : s + 1 < slots ? key_[s + 1] : 0;
    return expert;
  }

 private:
  /// The logit of a key: what is below its 16 bits is that of any number of the format.
  static SAMESTATE_DEVICE float value(std::uint32_t key) {
    return value_of((key >> 31) != 0 ? key & 0xffff0000U : key | 0xffffU);
  }
  /// Batcher's network, the largest first: pass `k` of the merges of runs of `run`.
  template <int run, int k>
  SAMESTATE_DEVICE void sort() {
    SAMESTATE_UNROLL
    for (int i = 0; i + k < slots; ++i) {
      const bool compared =
          i >= k % run && (i - k % run) % (2 * k) < k && i / (2 * run) == (i + k) / (2 * run);
      const std::uint32_t a = key_[i], b = key_[i + k];
      if (compared) key_[i] = a > b ? a : b, key_[i + k] = a > b ? b : a;
    }
    if constexpr (k > 1) {
      sort<run, k / 2>();
    } else if constexpr (2 * run < slots) {
      sort<2 * run, 2 * run>();
    }
  }

  std::uint32_t key_[slots];  ///< descending; 0: none
};

/// A token's N logits in a warp, `slots` a lane, n adjacent ones by one access; n divides N. The choice is that of the logits as
/// they are stored, of equal ones the expert with the lower number.
template <class Operand, int slots, int n>
struct TokenLogits {
  float power[slots];  ///< e^(logit - largest), 0 where there is none
  float largest = 0.0F;
  std::uint32_t taken = 0;  ///< a bit a slot

  static SAMESTATE_DEVICE int expert(int slot) { return expert_of<n>(slot, lane_index()); }

  SAMESTATE_DEVICE void load(const Operand* logits, int experts) {
    SAMESTATE_UNROLL
    for (int s = 0; s < slots; s += n) {
      const bool there = expert(s) < experts;
      Vector<Operand, n> x{};
      if constexpr (n == 1) {
        if (there) x = *reinterpret_cast<const Vector<Operand, n>*>(logits + expert(s));
      } else {
        x = load_settled<false>(reinterpret_cast<const Vector<Operand, n>*>(logits + expert(s)), there);
      }
      SAMESTATE_UNROLL
      for (int i = 0; i < n; ++i) {
        power[s + i] = element(x, i);
        order_.put(s + i, power[s + i], there);
      }
    }
    largest = order_.begin();
    SAMESTATE_UNROLL
    for (int s = 0; s < slots; ++s) power[s] = expert(s) < experts ? exponential(power[s] - largest) : 0.0F;
  }

  /// 1 / sum of the powers of all.
  [[nodiscard]] SAMESTATE_DEVICE float inverse_sum() const {
    float sum = 0.0F;
    SAMESTATE_UNROLL
    for (int s = 0; s < slots; ++s) sum += power[s];
    return 1.0F / warp_sum(sum);
  }

  /// The next expert by descending logit, in every lane; `logit` is its own.
  SAMESTATE_DEVICE int choose(float& logit) { return order_.take(logit, taken); }

 private:
  std::conditional_t<sizeof(Operand) == 2, SortedOrder<slots, n>, ScannedOrder<slots, n>> order_;
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
      const float power = exponential(logit - logits.largest);
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
    const float of_all = logits.inverse_sum();
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
  with_slots<Operand>(p.experts, [&]<int slots, int n>() {
    EachWarp<RoutedToken<Operand, slots, n, listed>>::launch(p, stream);
  });
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
  std::int64_t part_tokens = 1;      ///< of one block
  std::int64_t parts = 0;            ///< of a sequence
  std::int32_t* counted = nullptr;   ///< [batch, parts] tokens
  std::int32_t* assigned = nullptr;  ///< [batch, parts, experts] tokens, and sums of their probabilities
  float* sums = nullptr;
};

/// What a part of a sequence gives each expert. Shared memory: [8, experts] counts, sums, then tokens of the 8 warps.
template <class Operand, int slots, int n>
struct LoadOfPart {
  using Parameters = LoadParameters<Operand>;
  static constexpr int kThreads = 256, kWarps = kThreads / 32;
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
      int count[slots] = {};
      int mine = 0;
      for (std::int64_t t = first + warp_index(); t < end; t += kWarps) {
        if (p.mask[sequence + t] == 0.0F) continue;
        ++mine;
        TokenLogits<Operand, slots, n> logits;
        logits.load(p.logits + (sequence + t) * p.experts, p.experts);
        float ignored;
        for (int rank = 0; rank < p.chosen; ++rank) logits.choose(ignored);
        const float of_all = logits.inverse_sum();
        SAMESTATE_UNROLL
        for (int s = 0; s < slots; ++s) {
          sum[s] = fused(logits.power[s], of_all, sum[s]);
          count[s] += static_cast<int>(logits.taken >> s & 1U);
        }
      }
      SAMESTATE_UNROLL
      for (int s = 0; s < slots; ++s) {
        const int expert = TokenLogits<Operand, slots, n>::expert(s);
        if (expert >= p.experts) continue;
        assigned[warp_index() * p.experts + expert] = count[s];
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

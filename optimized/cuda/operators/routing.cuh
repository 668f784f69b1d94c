#pragma once

#include <cstdint>

#include "optimized/cuda/operators/grid.cuh"
#include "optimized/cuda/operators/warp_extremes.cuh"

/// Which experts a token goes to (EQ-20, MOE-13 to MOE-15) and how they are loaded (MOE-6): a warp a token, whose logits lie in
/// registers.
namespace samestate::cuda {

/// A token's N logits in a warp, `slots` a lane, n adjacent ones by one access; n divides N. The choice is that of the logits as
/// they are stored, of equal ones the expert with the lower number.
template <class Operand, int slots, int n>
struct TokenLogits {
  std::uint32_t order[slots];  ///< 0: none, or chosen
  float power[slots];          ///< e^(logit - largest), 0 where there is none
  std::uint32_t best = 0;      ///< of `order`, and its slot
  int best_slot = 0;
  float largest = 0.0F;
  std::uint32_t taken = 0;  ///< a bit a slot

  /// The expert of a slot of this lane.
  static SAMESTATE_DEVICE int expert(int slot) { return (slot / n * 32 + lane_index()) * n + slot % n; }

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
      for (int i = 0; i < n; ++i) order[s + i] = there ? order_of(element(x, i)) : 0;
    }
    find_best();
    largest = value_of(warp_largest(best));
    SAMESTATE_UNROLL
    for (int s = 0; s < slots; ++s)
      power[s] = expert(s) < experts ? exponential(value_of(order[s]) - largest) : 0.0F;
  }

  /// 1 / sum of the powers of all.
  [[nodiscard]] SAMESTATE_DEVICE float inverse_sum() const {
    float sum = 0.0F;
    SAMESTATE_UNROLL
    for (int s = 0; s < slots; ++s) sum += power[s];
    return 1.0F / warp_sum(sum);
  }

  /// The next expert by descending logit, in every lane; `logit` is its own.
  SAMESTATE_DEVICE int choose(float& logit) {
    const std::uint32_t most = warp_largest(best);
    logit = value_of(most);
    const std::uint32_t mine = best == most ? static_cast<std::uint32_t>(expert(best_slot)) : 0xffffffffU;
    const std::uint32_t chosen = warp_least(mine);
    if (mine == chosen) {
      taken |= 1U << best_slot;
      SAMESTATE_UNROLL
      for (int s = 0; s < slots; ++s) order[s] = s == best_slot ? 0 : order[s];
      find_best();
    }
    return static_cast<int>(chosen);
  }

 private:
  SAMESTATE_DEVICE void find_best() {
    best = 0;
    best_slot = 0;
    SAMESTATE_UNROLL
    for (int s = 0; s < slots; ++s) {
      if (order[s] > best) best = order[s], best_slot = s;
    }
  }
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
  static constexpr int kThreads = 256, kWarps = kThreads / 32;

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    float* const overlaps = reinterpret_cast<float*>(shared);
    for (std::int64_t b = block_index(); b < p.batch; b += grid_blocks()) {
      std::int64_t counted = 0;
      for (std::int64_t part = 0; part < p.parts; ++part) counted += p.counted[b * p.parts + part];
      const auto whole = static_cast<float>(p.per_token ? counted : counted * p.chosen);
      float overlap = 0.0F;
      for (int expert = thread_index(); expert < p.experts; expert += kThreads) {
        std::int64_t assigned = 0;
        float sum = 0.0F;
        for (std::int64_t part = 0; part < p.parts; ++part) {
          assigned += p.assigned[(b * p.parts + part) * p.experts + expert];
          sum += p.sums[(b * p.parts + part) * p.experts + expert];
        }
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

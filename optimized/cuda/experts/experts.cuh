#pragma once

#include <cstdint>

#include "optimized/cuda/host/grid.cuh"
#include "optimized/cuda/products/product.cuh"

/// Experts of a mixture by their tokens (MOE-16, form sorted): assignments in the order of experts, then of tokens, products in
/// groups, and each token's sum in the order of its ranks. Nothing depends on when a block runs. An assignment is number token x
/// chosen + rank; its place is where it stands by expert.
namespace samestate::cuda {

struct AssignmentParameters {
  const std::int32_t* choice = nullptr;  ///< [assignments] experts
  std::int64_t assignments = 0;
  int experts = 1;
  int chosen = 1;
  std::int64_t part = 1;  ///< assignments of one block
  std::int64_t parts = 0;
  std::int32_t* before =
      nullptr;  ///< [parts, experts]: of that expert in the part; then in all parts before it
  std::int32_t* total = nullptr;     ///< [experts] assignments
  std::int32_t* first = nullptr;     ///< [experts] places
  std::int32_t* token_at = nullptr;  ///< [places]
  std::int32_t* place_of = nullptr;  ///< [assignments]
  ProductTile* tiles = nullptr;
  std::int64_t tile_count = 0;
  int tile_rows = 1;
};

/// 1,024 experts at most: those of one thread of 256.
inline constexpr int kExpertsOfThread = 4;

/// Calls `visit(j, assignment)` for those of a part that go to expert thread + 256 j, in their order. `staged`: 1,024 numbers of
/// shared memory.
template <class Visit>
SAMESTATE_DEVICE void each_assignment(const AssignmentParameters& p, std::int64_t part, std::int32_t* staged,
                                      Visit&& visit) {
  constexpr int kStaged = 1024, kThreads = 256, kAtOnce = 8;
  const std::int64_t end = (part + 1) * p.part < p.assignments ? (part + 1) * p.part : p.assignments;
  for (std::int64_t from = part * p.part; from < end; from += kStaged) {
    const int count = end - from < kStaged ? static_cast<int>(end - from) : kStaged;
    block_barrier();
    for (int i = thread_index(); i < kStaged; i += kThreads) staged[i] = i < count ? p.choice[from + i] : -1;
    block_barrier();
    for (int i = 0; i < count; i += kAtOnce) {
      int experts[kAtOnce];  // read before `visit` writes
      SAMESTATE_UNROLL
      for (int j = 0; j < kAtOnce; ++j) experts[j] = staged[i + j];
      SAMESTATE_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        if (experts[j] % kThreads == thread_index()) visit(experts[j] / kThreads, from + i + j);
      }
    }
  }
}

/// How many assignments of a part each expert has. Shared memory: 4 KB.
struct CountedPart {
  using Parameters = AssignmentParameters;
  static constexpr int kThreads = 256;
  static constexpr std::size_t kShared = 4096;
  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    for (std::int64_t part = block_index(); part < p.parts; part += grid_blocks()) {
      int count[kExpertsOfThread] = {};
      each_assignment(p, part, reinterpret_cast<std::int32_t*>(shared), [&](int of, std::int64_t) {
        SAMESTATE_UNROLL
        for (int j = 0; j < kExpertsOfThread; ++j) count[j] += of == j ? 1 : 0;
      });
      SAMESTATE_UNROLL
      for (int j = 0; j < kExpertsOfThread; ++j) {
        const int expert = thread_index() + kThreads * j;
        if (expert < p.experts) p.before[part * p.experts + expert] = count[j];
      }
    }
  }
};

/// One expert's assignments before each part, and its total, by a warp.
struct SummedExpert {
  using Parameters = AssignmentParameters;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return p.experts; }
  static SAMESTATE_DEVICE int from_lane(int x, int lane) {
    return static_cast<int>(bits_of(shuffle(float_of(static_cast<std::uint32_t>(x)), lane)));
  }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t expert) {
    const int lane = lane_index();
    int total = 0;
    for (std::int64_t part = 0; part < p.parts; part += 32) {
      std::int32_t* const at = p.before + (part + lane) * p.experts + expert;
      const int mine = part + lane < p.parts ? *at : 0;
      int sum = mine;  // of the lanes up to this one
      SAMESTATE_UNROLL
      for (int apart = 1; apart < 32; apart *= 2) {
        const int other = from_lane(sum, lane >= apart ? lane - apart : lane);
        sum += lane >= apart ? other : 0;
      }
      if (part + lane < p.parts) *at = total + sum - mine;
      total += from_lane(sum, 31);
    }
    if (lane == 0) p.total[expert] = total;
  }
};

/// First places and tiles of all experts, by one block. Shared memory: 4 KB.
struct ScannedExperts {
  using Parameters = AssignmentParameters;
  static constexpr int kThreads = 256;
  static constexpr std::size_t kShared = 2 * kThreads * 2 * sizeof(std::int32_t);

  /// The sum of `mine` over the threads before this one, and over all. `sums`: 512 numbers.
  static SAMESTATE_DEVICE int before_me(int mine, std::int32_t* sums, int& all) {
    const int t = thread_index();
    sums[t] = mine;
    int from = 0;
    for (int apart = 1; apart < kThreads; apart *= 2) {
      block_barrier();
      const int sum = sums[from + t] + (t >= apart ? sums[from + t - apart] : 0);
      from = kThreads - from;
      sums[from + t] = sum;
    }
    block_barrier();
    all = sums[from + kThreads - 1];
    return sums[from + t] - mine;
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    std::int32_t* const sums = reinterpret_cast<std::int32_t*>(shared);
    // Neighbours, so that the order of experts is that of threads.
    int total[kExpertsOfThread], of_experts = 0, of_tiles = 0;
    SAMESTATE_UNROLL
    for (int j = 0; j < kExpertsOfThread; ++j) {
      const int expert = kExpertsOfThread * thread_index() + j;
      total[j] = expert < p.experts ? p.total[expert] : 0;
      of_experts += total[j];
      of_tiles += (total[j] + p.tile_rows - 1) / p.tile_rows;
    }
    int all;
    int place = before_me(of_experts, sums, all);
    int tile = before_me(of_tiles, sums + 2 * kThreads, all);
    SAMESTATE_UNROLL
    for (int j = 0; j < kExpertsOfThread; ++j) {
      const int expert = kExpertsOfThread * thread_index() + j;
      if (expert >= p.experts) continue;
      p.first[expert] = place;
      for (int row = 0; row < total[j]; row += p.tile_rows) {
        const int rows = total[j] - row < p.tile_rows ? total[j] - row : p.tile_rows;
        p.tiles[tile++] = {expert, rows, place + row};
      }
      place += total[j];
    }
    for (std::int64_t i = all + thread_index(); i < p.tile_count; i += kThreads) p.tiles[i] = {0, 0, 0};
  }
};

/// Where each assignment stands, and whose it is. Shared memory: 4 KB.
struct PlacedPart {
  using Parameters = AssignmentParameters;
  static constexpr int kThreads = 256;
  static constexpr std::size_t kShared = 4096;
  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    for (std::int64_t part = block_index(); part < p.parts; part += grid_blocks()) {
      int next[kExpertsOfThread] = {};
      SAMESTATE_UNROLL
      for (int j = 0; j < kExpertsOfThread; ++j) {
        const int expert = thread_index() + kThreads * j;
        if (expert < p.experts) next[j] = p.first[expert] + p.before[part * p.experts + expert];
      }
      each_assignment(p, part, reinterpret_cast<std::int32_t*>(shared), [&](int of, std::int64_t assignment) {
        int place = 0;
        SAMESTATE_UNROLL
        for (int j = 0; j < kExpertsOfThread; ++j) {
          if (of == j) place = next[j]++;
        }
        p.place_of[assignment] = place;
        p.token_at[place] = static_cast<std::int32_t>(assignment / p.chosen);
      });
    }
  }
};

/// Does the same in one block for assignments that form a single part. Shared memory: 4 KB.
struct OrderedPart {
  using Parameters = AssignmentParameters;
  static constexpr int kThreads = 256;
  static constexpr std::size_t kShared = 4096;
  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    CountedPart::run(p, shared);
    SAMESTATE_UNROLL
    for (int j = 0; j < kExpertsOfThread; ++j) {
      const int expert = thread_index() + kThreads * j;
      if (expert >= p.experts) continue;
      p.total[expert] = p.before[expert];  // which this thread has written
      p.before[expert] = 0;
    }
    block_barrier();
    ScannedExperts::run(p, shared);
    block_barrier();
    PlacedPart::run(p, shared);
  }
};

/// Orders the assignments.
inline void order_assignments(const AssignmentParameters& p, cudaStream_t stream) {
  if (p.parts == 1) return launch<OrderedPart>(1, OrderedPart::kShared, p, stream);
  launch<CountedPart>(blocks_of(p.parts, 1), CountedPart::kShared, p, stream);
  EachWarp<SummedExpert>::launch(p, stream);
  launch<ScannedExperts>(1, ScannedExperts::kShared, p, stream);
  launch<PlacedPart>(blocks_of(p.parts, 1), PlacedPart::kShared, p, stream);
}

/// 1 / (1 + e^-x) from the side that does not overflow.
SAMESTATE_DEVICE float logistic_of_either_sign(float x) {
  const float e = exponential(x < 0.0F ? x : -x);
  return (x < 0.0F ? e : 1.0F) / (1.0F + e);
}

/// silu(x W_gate^T) * (x W_up^T), rounded once.
template <class Operand>
struct StoreGatedUnit {
  static constexpr bool kPaired = true;
  Operand* y = nullptr;
  std::int64_t stride = 0;

  template <int n>
  SAMESTATE_DEVICE void operator()(std::int64_t, std::int64_t row, std::int64_t column,
                                   const float (&gate)[n], const float (&up)[n]) const {
    float values[n];
    SAMESTATE_UNROLL
    for (int i = 0; i < n; ++i) values[i] = gate[i] * logistic_of_either_sign(gate[i]) * up[i];
    store_adjacent(y + row * stride + column, values);
  }
};

template <class Operand>
struct CombineParameters {
  const Operand* z = nullptr;              ///< [places, width] of the experts
  const std::int32_t* place_of = nullptr;  ///< [tokens, chosen]
  const float* share = nullptr;            ///< [tokens, chosen]
  const Operand* shared = nullptr;         ///< [tokens, width] of the shared expert, or null
  const float* open = nullptr;             ///< [tokens], what multiplies it
  Operand* y = nullptr;                    ///< [tokens, width]
  std::int64_t tokens = 0;
  int chosen = 1;
  int width = 1;
};

/// n adjacent elements of a token's sum over its experts by rank, then the shared one; n divides the width.
template <class Operand, int n>
struct CombinedElements {
  using Parameters = CombineParameters<Operand>;
  using Elements = Vector<Operand, n>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return p.tokens * (p.width / n); }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t item) {
    const std::int64_t token = item / (p.width / n);
    const auto column = static_cast<int>(item % (p.width / n)) * n;
    float y[n] = {};
    const auto add = [&](float weight, const Operand* row) {
      const Elements x = *reinterpret_cast<const Elements*>(row + column);
      SAMESTATE_UNROLL
      for (int i = 0; i < n; ++i) y[i] = fused(weight, element(x, i), y[i]);
    };
    for (int rank = 0; rank < p.chosen; ++rank) {
      const std::int64_t assignment = token * p.chosen + rank;
      add(p.share[assignment], p.z + static_cast<std::int64_t>(p.place_of[assignment]) * p.width);
    }
    if (p.shared != nullptr) add(p.open[token], p.shared + token * p.width);
    *reinterpret_cast<Elements*>(p.y + token * p.width + column) = narrowed<Operand>(y);
  }
};

template <class Operand>
struct OpenParameters {
  const Operand* x = nullptr;     ///< [tokens, width]
  const Operand* gate = nullptr;  ///< [width]
  float* open = nullptr;          ///< [tokens]
  std::int64_t tokens = 0;
  int width = 1;
};

/// sigma(x w), x w in the format: how far the shared expert is open to a token. n divides the width.
template <class Operand, int n>
struct OpenedToken {
  using Parameters = OpenParameters<Operand>;
  using Elements = Vector<Operand, n>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return p.tokens; }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t token) {
    float sum = 0.0F;
    for (int at = lane_index() * n; at < p.width; at += 32 * n) {
      const Elements x = *reinterpret_cast<const Elements*>(p.x + token * p.width + at);
      const Elements w = *reinterpret_cast<const Elements*>(p.gate + at);
      SAMESTATE_UNROLL
      for (int i = 0; i < n; ++i) sum = fused(element(x, i), element(w, i), sum);
    }
    sum = warp_sum(sum);
    if (lane_index() == 0) p.open[token] = logistic_of_either_sign(widen(narrow<Operand>(sum)));
  }
};

}  // namespace samestate::cuda

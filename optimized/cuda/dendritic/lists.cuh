#pragma once

#include <cstdint>

#include "optimized/cuda/host/grid.cuh"
#include "optimized/cuda/units/bits.cuh"

/// Which tokens a branch of the dendritic layer runs on (EQUATIONS 7.3, steps 3, 4 and 8): masks of the branches that each
/// token uses, and of every branch the list of its tokens, in order. What is not listed costs nothing afterwards.
namespace samestate::cuda {

/// Sizes of the layer, letters as in EQUATIONS 7.2. A token of a head uses `slots` of its branches; slot i is the i-th of
/// them in the order of their numbers.
struct DendriticShape {
  std::int64_t batch = 1;
  std::int64_t tokens = 0;
  int heads = 1;
  int windows = 1;  ///< N
  int stride = 1;
  int width = 1;     ///< w of a window
  int channels = 1;  ///< d = (N - 1) stride + w
  int values = 1;    ///< dv
  int shared = 1;
  int routed = 0;
  int candidates = 0;
  int taps = 1;  ///< W

  [[nodiscard]] SAMESTATE_HOST_DEVICE int branches() const { return shared + candidates; }
  [[nodiscard]] SAMESTATE_HOST_DEVICE int slots() const { return shared + routed; }
  /// Rows of a token and a head, rows of a slot of them, lists.
  [[nodiscard]] SAMESTATE_HOST_DEVICE std::int64_t rows() const { return batch * tokens * heads; }
  [[nodiscard]] SAMESTATE_HOST_DEVICE std::int64_t slot_rows() const { return rows() * slots(); }
  [[nodiscard]] SAMESTATE_HOST_DEVICE std::int64_t lists() const { return batch * branches() * heads; }
};

struct SelectionParameters {
  DendriticShape shape;
  const float* scores = nullptr;  ///< [B, T, H, candidates]
  std::uint32_t* used = nullptr;  ///< [B, H, T], bit e: the token uses branch e
  int* branch = nullptr;          ///< [B, T, H, slots]
  float* omega = nullptr;         ///< [B, T, H, slots]
};

/// Row (b, t, h): the shared branches and the candidates of the `routed` highest scores, of equals the one with the lower
/// number, with weights that sum to one.
SAMESTATE_DEVICE void select_branches(const SelectionParameters& p, std::int64_t row) {
  const DendriticShape& n = p.shape;
  const float* score = p.scores + row * n.candidates;
  std::uint32_t chosen = 0;
  float sum = 0.0F;
  for (int i = 0; i < n.routed; ++i) {
    int best = -1;
    float most = 0.0F;
    for (int c = 0; c < n.candidates; ++c) {
      if ((chosen >> c & 1U) == 0 && (best < 0 || score[c] > most)) best = c, most = score[c];
    }
    chosen |= std::uint32_t{1} << best;
    sum += most;
  }
  // Shared and chosen branches each sum to one before they share the token.
  const float parts = (n.shared > 0 ? 1.0F : 0.0F) + (n.routed > 0 ? 1.0F : 0.0F);
  int slot = 0;
  const auto take = [&](int e, float omega) {
    p.branch[row * n.slots() + slot] = e;
    p.omega[row * n.slots() + slot] = omega;
    ++slot;
  };
  std::uint32_t used = 0;
  for (int e = 0; e < n.shared; ++e) {
    used |= std::uint32_t{1} << e;
    take(e, 1.0F / (static_cast<float>(n.shared) * parts));
  }
  for (int c = 0; c < n.candidates; ++c) {
    if ((chosen >> c & 1U) == 0) continue;
    used |= std::uint32_t{1} << (n.shared + c);
    take(n.shared + c, score[c] / (sum * parts));
  }
  const std::int64_t token = row / n.heads;  // of the batch
  const std::int64_t head = row % n.heads;
  p.used[(token / n.tokens * n.heads + head) * n.tokens + token % n.tokens] = used;
}

/// A token of a list, and the slot that the list's branch is of it.
struct alignas(8) ListEntry {
  int token;
  int slot;
};

struct ListParameters {
  DendriticShape shape;
  const std::uint32_t* used = nullptr;  ///< [B, H, T]
  ListEntry* entries = nullptr;         ///< [B, E, H, T], the first `length` of each
  int* length = nullptr;                ///< [B, E, H]
};

/// The lists: a block each, by ballots and sums over its warps.
struct ListBody {
  using Parameters = ListParameters;
  static constexpr int kThreads = 256;
  static constexpr int kWarps = kThreads / 32;
  /// Members of each warp, in turn for one step and the next: one barrier a step.
  static constexpr std::size_t kSharedBytes = 2 * kWarps * sizeof(int);

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    auto* const members = reinterpret_cast<int*>(shared);
    const DendriticShape& n = p.shape;
    int turn = 0;
    for (std::int64_t list = block_index(); list < n.lists(); list += grid_blocks()) {
      const auto head = static_cast<int>(list % n.heads);
      const auto e = static_cast<int>(list / n.heads % n.branches());
      const std::int64_t b = list / n.heads / n.branches();
      const std::uint32_t* used = p.used + (b * n.heads + head) * n.tokens;
      int length = 0;
      for (std::int64_t first = 0; first < n.tokens; first += kThreads, turn ^= 1) {
        const std::int64_t t = first + thread_index();
        const std::uint32_t branches = t < n.tokens ? used[t] : 0;
        const bool member = (branches >> e & 1U) != 0;
        const std::uint32_t of_warp = ballot(member);
        if (lane_index() == 0) members[turn * kWarps + warp_index()] = ones(of_warp);
        block_barrier();
        int before = 0, all = 0;
        SAMESTATE_UNROLL
        for (int w = 0; w < kWarps; ++w) {
          const int count = members[turn * kWarps + w];
          before += w < warp_index() ? count : 0;
          all += count;
        }
        if (member)
          p.entries[list * n.tokens + length + before + ones_below(of_warp, lane_index())] = {
              static_cast<int>(t), ones_below(branches, e)};
        length += all;
      }
      if (thread_index() == 0) p.length[list] = length;
    }
  }
};

}  // namespace samestate::cuda

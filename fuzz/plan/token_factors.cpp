#include "fuzz/plan/token_factors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

namespace samestate {
void pack(Case& c, Index sequences, const Dice& dice) {
  constexpr Index kFew = 8;
  c.lengths.assign(static_cast<std::size_t>(sequences), 0);
  if (c.T == 0) return;
  // The number of sequences that are not empty: each is equally likely to be one, and with many sequences the
  // last one always is.
  Index wanted = std::clamp<Index>(sequences - sequences / 4, 1, c.T);
  const bool last = sequences > kFew;
  std::vector<std::size_t> filled;
  Index open = wanted - (last ? 1 : 0);
  const Index places = sequences - (last ? 1 : 0);
  for (Index at = 0; at < places && open > 0; ++at) {
    if (dice.below(places - at) >= open) continue;
    filled.push_back(static_cast<std::size_t>(at));
    --open;
  }
  if (last) filled.push_back(static_cast<std::size_t>(sequences - 1));
  // Each gets one token, then a length near the mean, and one gets the rest.
  Index left = c.T - wanted;
  const Index most = 2 * left / wanted + 1;
  for (const std::size_t at : filled) {
    const Index more = std::min(left, dice.below(most + 1));
    c.lengths[at] = 1 + more;
    left -= more;
  }
  c.lengths[dice.pick(filled)] += left;
}

Factor tokens_by_chunk() {
  Factor f{"T:chunk", {"less", "C-1", "C", "C+1", "nC-1", "nC", "nC+1", "more"}, 2, true};
  f.fixes = {"T"};
  f.level = [](const Case& c) {
    const Index C = c.chunk;
    if (C < 3 || !c.lengths.empty()) return -1;
    if (c.T < C - 1) return 0;
    if (c.T <= C + 1) return static_cast<int>(c.T - C + 2);
    if (c.T % C == C - 1) return 4;
    return c.T % C <= 1 ? static_cast<int>(5 + c.T % C) : 7;
  };
  f.put = [](Case& c, int level, const Dice& dice) {
    const Index C = std::max<Index>(c.chunk, 3);
    static constexpr std::array<Index, 8> kMany{2, 2, 3, 4, 5, 7, 8, 16};
    const Index n = dice.pick(kMany);
    const std::array<Index, 8> tokens{dice.below(C - 1), C - 1, C,         C + 1,
                                      n * C - 1,         n * C, n * C + 1, n * C + 1 + dice.below(C - 2)};
    c.T = tokens[static_cast<std::size_t>(level)];
  };
  // It keeps the number of tokens: two or three chunks of them.
  f.put_least = [](Case& c, int level) {
    const Index T = c.T;
    const Index n = (level == 4 ? T + 1 : level == 6 ? T - 1 : T) % 2 == 0 ? 2 : 3;
    const std::array<Index, 8> chunk{T + 2, T + 1, T, T - 1, (T + 1) / n, T / n, (T - 1) / n, 2 * T / 3};
    c.chunk = std::max<Index>(chunk[static_cast<std::size_t>(level)], 1);
  };
  return f;
}

Factor tokens_beyond_tile() {
  constexpr Index kTile = 64;
  Factor f{"chunk>64", {"one", "several"}, 6, true};
  f.fixes = {"T", "chunk"};
  f.level = [](const Case& c) {
    const Index T = c.lengths.empty() ? c.T : std::ranges::max(c.lengths);
    if (c.chunk <= kTile || T <= kTile) return -1;
    return T > c.chunk ? 1 : 0;
  };
  f.put = [](Case& c, int level, const Dice& dice) {
    static constexpr std::array<Index, 7> kChunks{72, 80, 96, 128, 160, 192, 256};
    c.chunk = dice.pick(kChunks);
    c.T = level == 0 ? kTile + 1 + dice.below(c.chunk - kTile) : c.chunk + 1 + dice.below(2 * c.chunk);
  };
  // One and a half chunks, so that the last one ends within its first tile.
  f.put_least = [](Case& c, int level) {
    c.chunk = 80;
    c.T = level == 0 ? c.chunk : c.chunk + 40;
  };
  return f;
}

Factor prefilled(const CaseForm& decoded) {
  Factor f{"prefill", {"0", "1", "some", "all"}, 1};
  f.enable = [name = decoded.name](Case& c) { c.form = name, c.T = std::max<Index>(c.T, 4); };
  f.level = [](const Case& c) {
    if (c.form != "decode" || c.T < 3) return -1;
    return c.prefill < 2 ? static_cast<int>(c.prefill) : c.prefill < c.T ? 2 : 3;
  };
  f.put = [](Case& c, int level, const Dice& dice) {
    const std::array<Index, 4> prefill{0, 1, c.T > 3 ? 2 + dice.below(c.T - 3) : 2, c.T};
    c.prefill = prefill[static_cast<std::size_t>(level)];
  };
  return f;
}

Factor sequences(const CaseForm& packed) {
  static constexpr std::array<std::array<Index, 2>, 6> kCounts{
      {{1, 1}, {2, 8}, {9, 32}, {33, 128}, {129, 512}, {513, 2000}}};
  Factor f{"sequences", {}, 1, true};
  f.enable = [name = packed.name](Case& c) { c.form = name; };
  for (const auto& [from, to] : kCounts)
    f.levels.push_back(from == to ? fmt::format("{}", from) : fmt::format("{}-{}", from, to));
  f.level = [](const Case& c) {
    for (std::size_t i = 0; i < kCounts.size(); ++i) {
      if (std::ssize(c.lengths) >= kCounts[i][0] && std::ssize(c.lengths) <= kCounts[i][1])
        return static_cast<int>(i);
    }
    return -1;
  };
  f.put = [name = packed.name](Case& c, int level, const Dice& dice) {
    if (c.form != name) return;
    const auto& [from, to] = kCounts[static_cast<std::size_t>(level)];
    pack(c, from + dice.below(to - from + 1), dice);
  };
  return f;
}

}  // namespace samestate

#include <algorithm>

#include "fuzz/mutants/family/over_ranks.h"
#include "fuzz/mutants/family/rows.h"

/// Mistakes of code that divides the tokens among ranks: whose state a rank takes, what a part's map
/// contains, how maps are composed, where cuts and ends of sequences are, and what is rounded on the way.
namespace samestate::mutants {
namespace {

/// Rank r starts where rank r - 1 started.
struct WrongNeighbour : OverRanks {
  using OverRanks::OverRanks;
  Grid received(std::size_t i) override { return OverRanks::received(i > 0 ? i - 1 : 0); }
};

/// The maps are read one place off: a part's is the next one's.
struct MapOfNeighbour : OverRanks {
  using OverRanks::OverRanks;
  Grid received(std::size_t i) override {
    Grid S = handed_in();
    for (std::size_t before = 0; before < i; ++before)
      S = settled(composed(maps_[std::min(before + 1, maps_.size() - 1)], S));
    return S;
  }
};

/// The decay of the part multiplies M, which already contains it.
struct PartDecayTwice : OverRanks {
  using OverRanks::OverRanks;
  Map map_of(const cpu::Part& part) override {
    Map map = OverRanks::map_of(part);
    if (!decays()) return map;
    float sum = 0.0F;
    for (Index t = part.begin; t < part.end; ++t) sum += gate(*whole_.g.row(t));
    map.M *= exponential(sum);
    return map;
  }
};

/// M of the earlier parts multiplies from the wrong side, as if maps commuted.
struct MapsSwapped : OverRanks {
  using OverRanks::OverRanks;
  Grid received(std::size_t i) override {
    const Grid start = handed_in();
    Grid M = Grid::Identity(start.rows(), start.rows());
    Grid N = Grid::Zero(start.rows(), start.cols());
    for (std::size_t before = 0; before < i; ++before) {
      N = composed(maps_[before], N);
      M = multiply(M, maps_[before].M);
    }
    return multiply(M, start) + N;
  }
};

/// The earlier parts are composed from the last to the first.
struct PartsReversed : OverRanks {
  using OverRanks::OverRanks;
  Grid received(std::size_t i) override {
    Grid S = handed_in();
    while (i-- > 0) S = settled(composed(maps_[i], S));
    return S;
  }
};

/// Every rank holds floor(T / ranks) tokens, and the remaining ones are dropped.
struct LastPartShort : OverRanks {
  using OverRanks::OverRanks;
  std::vector<cpu::Part> parts() const override {
    std::vector<cpu::Part> all = OverRanks::parts();
    const auto ranks = static_cast<std::int64_t>(cuts().size()) - 1;
    const std::int64_t lost = packed() || all.back().rank + 1 < ranks ? 0 : whole_.tokens % ranks;
    all.back().end -= std::min(lost, all.back().end - all.back().begin);
    return all;
  }
};

/// A map covers only the part's whole chunks.
struct MapOfWholeChunks : OverRanks {
  using OverRanks::OverRanks;
  Map map_of(const cpu::Part& part) override {
    return map_of_tokens(part.begin,
                         part.begin + (part.end - part.begin) / arguments_.chunk * arguments_.chunk);
  }
};

/// A rank without tokens passes a zero state on instead of the one that it received.
struct EmptyRankPassesZero : OverRanks {
  using OverRanks::OverRanks;
  Grid received(std::size_t i) override {
    Grid S = OverRanks::received(i);
    if (i > 0 && parts_[i].rank > parts_[i - 1].rank + 1) S.setZero();
    return S;
  }
};

/// Only rank 0 gets an initial state, although sequences begin on other ranks too.
struct InitialStateOnRank0 : OverRanks {
  using OverRanks::OverRanks;
  Grid handed_in() override {
    Grid S = OverRanks::handed_in();
    if (parts_.front().rank > 0) S.setZero();
    return S;
  }
};

/// Each part's own run starts from the initial state, not from zero.
struct InitialStateInEveryMap : OverRanks {
  using OverRanks::OverRanks;
  Grid start_of_map() const override {
    Grid start = OverRanks::start_of_map();
    start.rightCols(whole_.dv) = start_;
    return start;
  }
  Map map_of(const cpu::Part& part) override {
    start_ = handed_in();
    return OverRanks::map_of(part);
  }
  Grid start_;
};

/// The map of a rank covers all its tokens, including those of the previous sequence.
struct MapOverSequenceBegin : OverRanks {
  using OverRanks::OverRanks;
  Map map_of(const cpu::Part& part) override {
    if (!packed() || part.begin > 0) return OverRanks::map_of(part);
    const std::int64_t first = cuts()[static_cast<std::size_t>(part.rank)] - arguments_.cu_seqlens(n_);
    // Tokens that belong to no sequence must not be read.
    const std::int64_t owned = arguments_.cu_seqlens(0) - arguments_.cu_seqlens(n_);
    return map_of_tokens(std::min(std::max(first, owned), part.begin), part.end);
  }
};

/// The cut of a packed sequence is mistaken for its end: the rest starts from zero.
struct CutEndsSequence : OverRanks {
  using OverRanks::OverRanks;
  Grid received(std::size_t i) override {
    Grid S = OverRanks::received(i);
    if (packed() && i > 0) S.setZero();
    return S;
  }
};

/// M = prod alpha (I - k k^T), while N has its beta.
struct MapWithoutBeta : OverRanks {
  using OverRanks::OverRanks;
  Map map_of(const cpu::Part& part) override {
    Map map = OverRanks::map_of(part);
    unit_ = true;
    map.M = OverRanks::map_of(part).M;
    unit_ = false;
    return map;
  }
  float strength(float beta) const override { return unit_ ? 1.0F : beta; }
  bool unit_ = false;
};

/// M = prod (I - beta k k^T), while N has its decay.
struct MapWithoutDecay : OverRanks {
  using OverRanks::OverRanks;
  Map map_of(const cpu::Part& part) override {
    Map map = OverRanks::map_of(part);
    open_ = true;
    map.M = OverRanks::map_of(part).M;
    open_ = false;
    return map;
  }
  float given_gate(Index t) const override { return open_ ? 0.0F : OverRanks::given_gate(t); }
  bool open_ = false;
};

/// The final state is what the last rank computes from zero.
struct FinalStateOfPart : OverRanks {
  using OverRanks::OverRanks;
  void store_state(const Grid& S) override {
    if (mapping_ || parts_.size() < 2) return OverRanks::store_state(S);
    OverRanks::store_state(map_of_tokens(parts_.back().begin, parts_.back().end).N);
  }
};

/// Maps travel in bf16.
struct Bf16Maps : OverRanks {
  using OverRanks::OverRanks;
  Map map_of(const cpu::Part& part) override {
    const Map map = OverRanks::map_of(part);
    return {rounded(map.M, Format::bf16), rounded(map.N, Format::bf16)};
  }
};

/// The state that reaches a part travels in bf16.
struct Bf16Reached : OverRanks {
  using OverRanks::OverRanks;
  Grid received(std::size_t i) override {
    const Grid S = OverRanks::received(i);
    return i > 0 ? rounded(S, Format::bf16) : S;
  }
};

/// M S is a product of bf16 operands.
struct Bf16Composition : OverRanks {
  using OverRanks::OverRanks;
  Grid composed(const Map& map, const Grid& S) const override {
    return multiply(rounded(map.M, Format::bf16), rounded(S, Format::bf16)) + map.N;
  }
};

/// M S is a product of tf32 operands in a kernel that promises fp32.
struct Tf32Composition : OverRanks {
  using OverRanks::OverRanks;
  Grid composed(const Map& map, const Grid& S) const override {
    return multiply(rounded(map.M, Format::tf32), rounded(S, Format::tf32)) + map.N;
  }
};

}  // namespace

std::vector<Mutant> ranks_mutants() {
  static const std::vector<std::string> kBoth = {"fp32", "bf16"};
  std::vector<Mutant> out;
  add<WrongNeighbour>(out, {"F", "wrong_neighbour", "a rank starts where the rank before it started", kBoth},
                      kAll);
  add<MapOfNeighbour>(out, {"F", "map_of_neighbour", "the map of a part is the next one's", kBoth}, kAll);
  add<PartDecayTwice>(out, {"F", "part_decay_twice", "the decay of a part multiplies its map twice", kBoth},
                      kGated);
  add<MapWithoutDecay>(out, {"F", "map_without_decay", "the map of a part lacks its decay", kBoth}, kGated);
  add<MapWithoutBeta>(out, {"F", "map_without_beta", "the map of a part is made of I - k k^T", kBoth},
                      kDeltas);
  add<MapsSwapped>(out, {"F", "maps_swapped", "maps of parts are multiplied from the wrong side", kBoth},
                   kDeltas);
  add<PartsReversed>(out, {"F", "parts_reversed", "parts are composed from the last to the first", kBoth},
                     kGatedDelta | kDelta | kRetention);
  add<LastPartShort>(out, {"F", "last_part_short", "every rank holds T / ranks tokens, rounded down", kBoth},
                     kAll);
  add<MapOfWholeChunks>(
      out, {"F", "map_of_whole_chunks", "the map of a part leaves its last, partial chunk out", kBoth}, kAll);
  add<EmptyRankPassesZero>(
      out, {"F", "empty_rank_passes_zero", "a rank without tokens hands a zero state on", kBoth}, kAll);
  add<InitialStateOnRank0>(out,
                           {"F", "initial_state_on_rank_0",
                            "sequences that begin on another rank than 0 lose their initial state", kBoth},
                           kAll);
  add<InitialStateInEveryMap>(
      out, {"F", "initial_state_in_every_map", "each part's own run starts from the initial state", kBoth},
      kAll);
  add<MapOverSequenceBegin>(
      out, {"F", "map_over_sequence_begin", "the map of a rank is of the sequence before, too", kBoth}, kAll);
  add<CutEndsSequence>(
      out, {"F", "cut_ends_sequence", "a cut inside a packed sequence is taken for its end", kBoth}, kAll);
  add<FinalStateOfPart>(
      out, {"F", "final_state_of_part", "the last rank leaves its part's own end, from zero", kBoth}, kAll);
  add<Bf16Maps>(
      out,
      {"F", "bf16_maps", "maps of parts travel in bf16, by a kernel that promises bf16 operands", kOnlyBf16},
      kAll);
  add<Bf16Reached>(
      out,
      {"F", "bf16_reached",
       "the state that reaches a part travels in bf16, by a kernel that promises bf16 operands", kOnlyBf16},
      kAll);
  add<Bf16Composition>(out,
                       {"F", "bf16_composition",
                        "M S is a product of bf16, by a kernel that promises bf16 operands", kOnlyBf16},
                       kAll);
  add<Tf32Composition>(out, {"F", "tf32_composition", "M S is a product of tf32", {"fp32"}}, kAll);
  return out;
}

}  // namespace samestate::mutants

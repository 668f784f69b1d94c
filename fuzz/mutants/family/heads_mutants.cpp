#include <algorithm>
#include <numeric>
#include <vector>

#include "fuzz/mutants/family/evaluator.h"
#include "fuzz/mutants/family/over_ranks.h"
#include "fuzz/mutants/family/rows.h"
#include "optimized/head_ranks.h"

/// Mistakes of code that divides the heads among ranks: which key head serves a value head once numbers count
/// from the rank's first head, whose gates and states a rank reads, where its outputs go, and what is rounded
/// on the way.
namespace samestate::mutants {
namespace {

using Number = std::int64_t;

/// The chunked form with its value heads divided among ranks. A rank knows a head by its local number `l_`;
/// each virtual function says which head of the call is read or written.
class OverHeads : public Chunked {
 public:
  OverHeads(const cpu::System& system, const Arguments& arguments, const Contract& contract)
      : Chunked(system, arguments, contract),
        cuts_(cpu::checked_head_cuts(arguments, sizes_)),
        parts_(cpu::head_parts_of(arguments, sizes_, cuts_)) {}
  static constexpr const char* form = "head_parallel";

 protected:
  [[nodiscard]] cpu::Head locate(Number n, Number h) const override {
    const auto i = static_cast<std::size_t>(
        std::find_if(parts_.begin(), parts_.end(), [h](const cpu::HeadPart& part) { return h < part.end; }) -
        parts_.begin());
    const Number l = h - parts_[i].begin;
    const auto of = [&](Number head) { return cpu::head_of(arguments_, sizes_, n, head); };
    cpu::Head head = of(h);
    const cpu::Head key = of(served_by(key_head(i, l)));
    head.q = key.q, head.k = key.k;
    const cpu::Head gates = of(gates_of(i, l));
    head.g = gates.g, head.beta = gates.beta;
    head.initial_state = of(state_of(i, l)).initial_state;
    const cpu::Head out = of(place_of(i, l));
    head.o = out.o, head.final_state = out.final_state;
    return head;
  }

  /// Returns the key head for value head l of part i.
  [[nodiscard]] virtual Number key_head(std::size_t i, Number l) const {
    const cpu::HeadPart& part = parts_[i];
    return part.keys[static_cast<std::size_t>(part.key_of[static_cast<std::size_t>(l)])];
  }
  [[nodiscard]] virtual Number gates_of(std::size_t i, Number l) const { return parts_[i].begin + l; }
  [[nodiscard]] virtual Number state_of(std::size_t i, Number l) const { return parts_[i].begin + l; }
  [[nodiscard]] virtual Number place_of(std::size_t i, Number l) const { return parts_[i].begin + l; }

  [[nodiscard]] bool interleaved() const { return arguments_.head_map == HeadMap::interleaved; }
  [[nodiscard]] Number group() const { return sizes_.value_heads / sizes_.key_heads; }
  [[nodiscard]] Number ranks() const { return std::ssize(cuts_) - 1; }

  std::vector<Number> cuts_;
  std::vector<cpu::HeadPart> parts_;

 private:
  /// Returns a value head that the key head serves.
  [[nodiscard]] Number served_by(Number key) const { return interleaved() ? key * group() : key; }
};

/// It takes the key head's number on the rank for its number in the call.
struct LocalKeyHead : OverHeads {
  using OverHeads::OverHeads;
  Number key_head(std::size_t, Number l) const override {
    return interleaved() ? l / group() : l % sizes_.key_heads;
  }
};

/// A rank counts its key heads by the other head map.
struct OtherMapOnRank : OverHeads {
  using OverHeads::OverHeads;
  Number key_head(std::size_t i, Number l) const override {
    if (ranks() == 1) return OverHeads::key_head(i, l);
    const std::vector<Number>& keys = parts_[i].keys;
    const Number count = std::ssize(keys), heads = std::ssize(parts_[i].key_of);
    const Number place = interleaved() ? l % count : l / ((heads + count - 1) / count);
    return keys[static_cast<std::size_t>(place)];
  }
};

/// A rank's groups begin with its own first value head although the cut lies inside a group: the heads after
/// the group use the key head before their own.
struct GroupFromCut : OverHeads {
  using OverHeads::OverHeads;
  Number key_head(std::size_t i, Number l) const override {
    return interleaved() ? parts_[i].keys.front() + l / group() : OverHeads::key_head(i, l);
  }
};

/// Every rank holds floor(Hv / ranks) heads, and the remaining ones are dropped.
struct LastHeadsDropped : OverHeads {
  using OverHeads::OverHeads;
  bool computes(Number, Number h) const override { return h < sizes_.value_heads / ranks() * ranks(); }
};

/// The states are those of the previous rank.
struct StateOfNeighbour : OverHeads {
  using OverHeads::OverHeads;
  Number state_of(std::size_t i, Number l) const override {
    if (i == 0) return OverHeads::state_of(i, l);
    return std::min(parts_[i - 1].begin + l, parts_[i - 1].end - 1);
  }
};

/// The gates are those of rank 0's heads.
struct GatesOfRank0 : OverHeads {
  using OverHeads::OverHeads;
  Number gates_of(std::size_t, Number l) const override { return l; }
};

/// Outputs are concatenated in the order in which ranks finish: the one with the fewest heads first, and of
/// equal ones the last.
struct GatheredAsCompleted : OverHeads {
  using OverHeads::OverHeads;
  Number place_of(std::size_t i, Number l) const override {
    const auto count = [&](std::size_t part) { return parts_[part].end - parts_[part].begin; };
    Number before = 0;
    for (std::size_t other = 0; other < parts_.size(); ++other) {
      if (count(other) < count(i) || (count(other) == count(i) && other > i)) before += count(other);
    }
    return before + l;
  }
};

/// Final states travel in bf16, which the bound of a kernel with bf16 operands hides; a comparison with a
/// single rank shows it.
struct Bf16Gather : OverHeads {
  using OverHeads::OverHeads;
  void store_state(const Grid& S) override {
    Chunked::store_state(ranks() > 1 ? rounded(S, Format::bf16) : S);
  }
};

}  // namespace

Kernel unmutated_over_heads(const cpu::System& system) {
  return kernel_of<OverHeads>(system, "evaluator", {"fp32", "bf16"});
}

std::vector<Mutant> heads_mutants() {
  static const std::vector<std::string> kFp32 = {"fp32"};
  std::vector<Mutant> out;
  add<LocalKeyHead>(
      out, {"F", "local_key_head", "the key head is taken from the value head's number on its rank", kFp32},
      kAll);
  add<OtherMapOnRank>(
      out, {"F", "other_map_on_rank", "tiled and interleaved heads are exchanged on a rank", kFp32}, kAll);
  add<GroupFromCut>(out,
                    {"F", "group_from_cut",
                     "behind a cut inside a group the heads have the key head of the group before", kFp32},
                    kAll);
  add<LastHeadsDropped>(
      out, {"F", "last_heads_dropped", "every rank holds Hv / ranks heads, rounded down", kFp32}, kAll);
  add<StateOfNeighbour>(
      out, {"F", "state_of_neighbour", "a rank starts from the states of the rank before", kFp32}, kAll);
  add<GatesOfRank0>(out, {"F", "gates_of_rank_0", "beta and g are those of rank 0's heads", kFp32},
                    kGatedDelta | kDelta | kRetention);
  add<GatheredAsCompleted>(
      out, {"F", "gathered_as_completed", "outputs are gathered in the order in which ranks end", kFp32},
      kAll);
  add<Bf16Gather>(out,
                  {"F", "bf16_gather",
                   "final states are gathered in bf16, by a kernel that promises bf16 operands", kOnlyBf16},
                  kAll);
  return out;
}

}  // namespace samestate::mutants

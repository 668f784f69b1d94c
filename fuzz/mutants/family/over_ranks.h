#pragma once

#include <vector>

#include "fuzz/mutants/family/evaluator.h"
#include "optimized/ranks.h"

namespace samestate::mutants {

/// The chunked form with its tokens divided among ranks: the map S |-> M S + N of each part that another part
/// follows, from its tokens alone; the state that reaches a part, composed from the maps before it; and the
/// part evaluated from that state.
class OverRanks : public Chunked {
 public:
  using Chunked::Chunked;
  static constexpr const char* form = "sequence_parallel";

 protected:
  struct Map {
    Grid M, N;  ///< [dk, dk], [dk, dv]
  };

  void evaluate() override;
  [[nodiscard]] Grid initial_state() override;
  void store_state(const Grid& S) override;
  void store_row(Index t, const Grid& o) override;
  [[nodiscard]] Column value(Index t) const override;

  /// The cuts of the call, and the parts of sequence n_ on the ranks.
  [[nodiscard]] virtual std::vector<std::int64_t> cuts() const;
  [[nodiscard]] virtual std::vector<cpu::Part> parts() const;
  /// The map of the tokens of a part.
  [[nodiscard]] virtual Map map_of(const cpu::Part& part);
  [[nodiscard]] Map map_of_tokens(Index begin, Index end);
  /// The state from which a map's own run starts, next to its values [0 | V].
  [[nodiscard]] virtual Grid start_of_map() const;
  [[nodiscard]] virtual Grid composed(const Map& map, const Grid& S) const;
  /// The initial state of the sequence as the maps receive it.
  [[nodiscard]] virtual Grid handed_in() { return Evaluator::initial_state(); }
  /// The state that reaches part i.
  [[nodiscard]] virtual Grid received(std::size_t i);

  std::vector<cpu::Part> parts_;
  std::vector<Map> maps_;  ///< for each part except the last
  cpu::Head whole_;        ///< the whole sequence
  bool mapping_ = false;   ///< the current run is that of a map

 private:
  bool last_ = false;  ///< the part ends where the sequence does
  Grid reached_, made_;
};

/// The row, without a fault, of the form whose heads are divided among ranks.
[[nodiscard]] Kernel unmutated_over_heads(const cpu::System& system);

}  // namespace samestate::mutants

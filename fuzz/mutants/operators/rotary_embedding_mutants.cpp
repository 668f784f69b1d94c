#include <algorithm>

#include "fuzz/mutants/operators/changed_call.h"

/// Rotation: M85, and tables, pairs and columns.
namespace samestate::mutants {
namespace {

using Call = ChangedCall;

void last_pair_does_not_turn(Call& c) {
  each_row(c.input("cosine"), c.width("cosine"), [](std::span<float> x) { x.back() = 1.0F; });
  each_row(c.input("sine"), c.width("sine"), [](std::span<float> x) { x.back() = 0.0F; });
}
void no_rotation(Call& c) {
  c.fill("cosine", 1.0F);
  c.fill("sine", 0.0F);
}
void rest_unwritten(Call& c) {
  const std::int64_t turned = 2 * c.at("pairs");
  each_row(c.output("y"), c.at("d"),
           [turned](std::span<float> row) { std::fill(row.begin() + turned, row.end(), 0.0F); });
}

}  // namespace

std::vector<Mutant> rotary_embedding_mutants() {
  std::vector<Mutant> out;
  add_faults(
      out, "cpu.rotary_embedding.full_width",
      {{"M85", "always_halves", "pairs (i, i + d / 2) where (2 i, 2 i + 1) are meant",
        misread(fixed("interleaved", 0))},
       {"M85", "always_interleaved", "pairs (2 i, 2 i + 1) where (i, i + d / 2) are meant",
        misread(fixed("interleaved", 1))},
       {"F", "turned_the_other_way", "the angle has the other sign",
        misread(mapped("sine", [](float x) { return -x; }))},
       {"F", "position_off_by_one", "tables of the token before", misread(token_before({"cosine", "sine"}))},
       {"F", "last_pair_does_not_turn", "the last pair does not turn", misread(last_pair_does_not_turn)},
       {"F", "no_rotation", "nothing turns", misread(no_rotation)},
       {"F", "rest_unwritten", "columns that do not turn are zero", miswritten(rest_unwritten)}});
  return out;
}

}  // namespace samestate::mutants

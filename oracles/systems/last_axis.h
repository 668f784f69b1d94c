#pragma once

#include <string>
#include <string_view>

#include "oracles/systems/operator.h"
#include "oracles/verdict.h"

/// Names of places in the tensors of operators.
namespace samestate {

/// What the last axis of an output counts, as the row's own sizes say.
struct LastAxis {
  std::string word = "column";  ///< a place along it: "head" of one value each, "expert", else "column"
  Index width = 0;              ///< where it is heads, one after another, of so many channels; else 0
  bool tokens = false;          ///< its rows are the tokens

  /// "column 5", "expert 5"; "head 1, channel 3" where it is heads.
  [[nodiscard]] std::string text(Index column) const;
  /// Where an element stands: of heads by head and channel if the rows are tokens (so that no row says a head too), else by
  /// row and column.
  [[nodiscard]] Location place(Index row, Index column) const;
};

/// Asks the signature whether the axis doubles with the heads, with their width, or with the experts.
[[nodiscard]] LastAxis last_axis(const Operator& row, const Call& call, std::string_view output);

}  // namespace samestate

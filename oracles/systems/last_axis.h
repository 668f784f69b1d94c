#pragma once

#include <string>
#include <string_view>

#include "oracles/systems/operator.h"
#include "oracles/verdict.h"

/// Names for places in the tensors of operators.
namespace samestate {

/// The meaning of an output's last axis, according to the sizes of the row.
struct LastAxis {
  std::string word = "column";  ///< one place along it: "head" for one value a head, "expert" or "column"
  Index width = 0;              ///< if it consists of heads, one after another, the channels of each; else 0
  bool tokens = false;          ///< its rows are the tokens

  /// "column 5", "expert 5"; "head 1, channel 3" if it consists of heads.
  [[nodiscard]] std::string text(Index column) const;
  /// The location of an element: by head and channel if the axis consists of heads and the rows are tokens
  /// (so that no row names a head too), else by row and column.
  [[nodiscard]] Location place(Index row, Index column) const;
};

/// Finds out from the signature if the axis doubles with the heads, with their width, or with the experts.
[[nodiscard]] LastAxis last_axis(const Operator& row, const Call& call, std::string_view output);

}  // namespace samestate

#pragma once

#include <span>
#include <string_view>

namespace samestate {

/// How a kernel sees the tensors of a call. The innermost dimension has stride 1 in each of them.
enum class Layout {
  dense,
  padded,    ///< unused elements between tokens and heads
  far,       ///< rows so far apart that their offsets do not fit 32 bits (BUGS M38)
  mixed,     ///< some dense; of the others each dimension with a gap of its own: no two of them share strides
  fused,     ///< inputs of the same tokens are parts of the rows of one buffer; states and outputs likewise
  permuted,  ///< memory [B, H, T, D] of a [B, T, H, D]; of states and of rank 3 the first two exchanged
  sliced,  ///< the first columns of wider rows: a gap behind each row, and none behind tokens, heads or sequences
  /// Dense, and behind the last element of each tensor begins a page that nobody may touch; inputs can only be read.
  page_end
};

/// As the case line has them, in the order of Layout.
[[nodiscard]] std::span<const std::string_view> layout_names();

/// Throws Error for another name.
[[nodiscard]] Layout layout_named(std::string_view name);

/// What becomes of a call's final state.
enum class FinalState {
  apart,    ///< memory of its own; of calls that follow another, that of the initial state
  none,     ///< not asked for: o is that of calls without it, each made once more for the state
  in_place  ///< the memory of the initial state, in the first call too
};
/// apart, none or in_place. Throws Error for another name.
[[nodiscard]] FinalState final_state_named(std::string_view name);

}  // namespace samestate

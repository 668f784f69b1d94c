#pragma once

#include <span>
#include <string_view>

namespace samestate {

/// How the tensors of a call lie in memory. The innermost dimension has stride 1 in each of them.
enum class Layout {
  dense,
  padded,  ///< unused elements between tokens and heads
  far,     ///< rows so far apart that their offsets do not fit in 32 bits (BUGS M38)
  mixed,   ///< some tensors are dense; in the others each dimension has its own gap, so no two of them share
           ///< strides
  fused,   ///< inputs for the same tokens are parts of the rows of one buffer; likewise states and outputs
  permuted,  ///< memory order [B, H, T, D] for a [B, T, H, D]; for states and tensors of rank 3 the first two
             ///< are exchanged
  sliced,    ///< the first columns of wider rows: a gap after each row, and none after tokens, heads or
             ///< sequences
  /// Dense, with a page that nobody may touch right after the last element of each tensor; inputs are
  /// read-only.
  page_end
};

/// The names that the case line uses, in the order of Layout.
[[nodiscard]] std::span<const std::string_view> layout_names();

/// The layout of that name. Throws Error for an unknown name.
[[nodiscard]] Layout layout_named(std::string_view name);

/// Where a call writes its final state.
enum class FinalState {
  apart,  ///< to memory of its own; in calls that follow another, that of the initial state
  none,  ///< it is not requested: o comes from calls without it, and each call is repeated with it to get the
         ///< state
  in_place  ///< to the memory of the initial state, in the first call too
};
/// "apart", "none" or "in_place". Throws Error for an unknown name.
[[nodiscard]] FinalState final_state_named(std::string_view name);

}  // namespace samestate

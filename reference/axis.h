#pragma once

namespace samestate {

/// An axis says how a tensor is divided when the tokens of a sequence are evaluated in several calls, and in
/// a packed batch.
enum class Axis {
  tokens,  ///< row t belongs to token t: a call receives the rows of its tokens
  prefix,  ///< token t sees rows 0..t: a call receives all rows up to its last token (keys and values)
  whole,   ///< weights and tables, the same in every call and every sequence of a batch
  state,   ///< carried over: the output of one call is the input of the same name of the next; one per
           ///< sequence
  request  ///< one value for a whole sequence, the same in every call of it (the slot of its state)
};

}  // namespace samestate

#pragma once

namespace samestate {

/// An axis says how a tensor behaves when the tokens of a sequence are evaluated in several calls, and in a packed batch.
enum class Axis {
  tokens,  ///< row t belongs to token t: a call gets the rows of its tokens
  prefix,  ///< token t sees rows 0..t: a call gets all rows up to its last token (keys and values)
  whole,   ///< weights and tables, the same in every call and every sequence of a batch
  state,   ///< carried: an output of one call is the input of the same name of the next; one a sequence
  request  ///< of one sequence as a whole, the same in every call of it (the slot of its state)
};

}  // namespace samestate

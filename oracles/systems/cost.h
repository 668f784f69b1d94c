#pragma once

#include <cstdint>

namespace samestate {

/// The counts of the cost model (reference/costs) for one sequence in one call of a system.
struct Cost {
  /// The recurrence inside it, over all its heads.
  struct Chunk {
    std::int64_t heads = 0;  ///< for a scan, its channels; 0 if there is no recurrence, or the form has no
                             ///< chunk
    std::int64_t operations = 0;   ///< per chunk
    std::int64_t state_bytes = 0;  ///< bytes of writing the state and reading it, per chunk
    std::int64_t token_bytes = 0;  ///< bytes of the tensors that a token reads and writes
  };
  std::int64_t operations = 0;  ///< operations of this form; 0 if they are not counted
  std::int64_t idle = 0;        ///< elements of its inputs that may stay unread: experts that are not chosen
  Chunk chunk = {};
};

}  // namespace samestate

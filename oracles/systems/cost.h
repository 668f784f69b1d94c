#pragma once

#include <cstdint>

namespace samestate {

/// What the cost model (reference/costs) counts of one sequence in one call of a system.
struct Cost {
  /// The recurrence inside it, all its heads.
  struct Chunk {
    std::int64_t heads = 0;        ///< of a scan, its channels; 0: there is none, or the form has no chunk
    std::int64_t operations = 0;   ///< of one chunk
    std::int64_t state_bytes = 0;  ///< that the state adds to a chunk: written, and read by the next one
    std::int64_t token_bytes = 0;  ///< of what a token brings and takes
  };
  std::int64_t operations = 0;  ///< of this form; 0: nobody has counted them
  std::int64_t idle = 0;        ///< elements of its inputs that it may leave unread: experts not chosen
  Chunk chunk = {};
};

}  // namespace samestate

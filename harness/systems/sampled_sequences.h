#pragma once

#include "oracles/verdict.h"
#include "reference/sequence.h"

namespace samestate {

/// Which sequences of a batch are compared with drawn roundings or a twin: as many as the work allowed for a
/// case permits, including the first and the last, with the others evenly spaced between them.
class SampledSequences {
 public:
  /// `one` is the work of one sequence; `usual` and `most` are those of a case, the latter if the worst case
  /// is vacuous.
  SampledSequences(Index batch, double one, double usual, double most);
  [[nodiscard]] bool takes(Index b, Verdict worst_case) const;

 private:
  Index batch_;
  Index usual_;
  Index most_;
};

}  // namespace samestate

#pragma once

#include "oracles/verdict.h"
#include "reference/sequence.h"

namespace samestate {

/// Which sequences of a batch are held against drawn roundings or a twin: as many as the work allows that a case may
/// take, the first and the last among them, the others evenly between.
class SampledSequences {
 public:
  /// `one`: work of one sequence; `usual` and `most`: of a case, the latter where the worst case says nothing.
  SampledSequences(Index batch, double one, double usual, double most);
  [[nodiscard]] bool takes(Index b, Verdict worst_case) const;

 private:
  Index batch_;
  Index usual_;
  Index most_;
};

}  // namespace samestate

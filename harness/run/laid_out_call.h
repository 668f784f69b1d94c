#pragma once

#include <vector>

#include "harness/cases/layout.h"
#include "harness/run/whole_call.h"

namespace samestate {

/// The tensors of a whole call once more, with the gaps and the order in memory that a layout has, as the gate lays them out.
class LaidOutCall {
 public:
  /// `whole` outlives it. Throws Unavailable where there is no memory.
  LaidOutCall(const WholeCall& whole, Layout layout);

  [[nodiscard]] const KernelCall& call() const { return call_; }

  /// What the outputs hold becomes that of the whole call's. Throws Trespass where an input or an element beside an output
  /// has changed.
  void give_back() const;

 private:
  const WholeCall* whole_;
  std::vector<GuardedTensor> inputs_, outputs_;
  KernelCall call_;  ///< whose tensors are these
};

}  // namespace samestate

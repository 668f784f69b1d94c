#pragma once

#include <vector>

#include "harness/cases/layout.h"
#include "harness/run/whole_call.h"

namespace samestate {

/// A copy of the tensors of a whole call with the gaps and the memory order of a layout, as the gate lays
/// them out.
class LaidOutCall {
 public:
  /// `whole` must outlive it. Throws Unavailable if there is no memory.
  LaidOutCall(const WholeCall& whole, Layout layout);

  [[nodiscard]] const KernelCall& call() const { return call_; }

  /// Copies the outputs back to the whole call. Throws Trespass if an input, or an element outside of the
  /// outputs, has changed.
  void give_back() const;

 private:
  const WholeCall* whole_;
  std::vector<GuardedTensor> inputs_, outputs_;
  KernelCall call_;  ///< the call on these tensors
};

}  // namespace samestate

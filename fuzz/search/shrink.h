#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/cases/case_line.h"
#include "harness/records/case_result.h"
#include "reference/error.h"

namespace samestate {

struct ShrinkOptions {
  double budget = 30.0;  ///< seconds, after which the smallest case so far is returned
  int reruns = 3;        ///< runs of the original and of the smallest case, which must agree
  /// Runs a case in a process that has run no other; if empty, `run` is used. The smallest case must fail
  /// there too, because a kernel that keeps something from call to call may fail after other cases although
  /// it passes the same case alone.
  std::function<CaseResult(const Case&)> fresh = {};
  /// If it returns true, no case is run any more, not even again, and the smallest case so far is returned.
  /// It is called between runs.
  std::function<bool()> stop = {};
  /// Returns the known faults whose values a failing case has (mutants_like), in `seconds`. The smallest case
  /// must show some of the faults that the original shows, and no others. If empty, faults are not compared.
  std::function<std::vector<std::string>(const Case&, double seconds)> looks_like = {};
};

/// Thrown if the case does not fail when it is run again.
class NothingToShrink : public Error {
 public:
  using Error::Error;
};

/// The smallest case that was found and still fails in the same way.
struct Shrunk {
  Case smallest;
  CaseResult finding;     ///< the result of `smallest`; its verdict is flaky if runs of it disagree
  std::int64_t runs = 0;  ///< number of runs of the kernel
  double seconds = 0.0;
  bool complete = false;  ///< true if no further step fails, false if the budget or `stop` ended it
};

/// Returns the kind of failure of a judgement, which shrinking preserves. The gates of one output are a
/// single kind, because it depends on sizes which of row, head or worst case is exceeded first. For named
/// tensors, the output is part of the kind.
[[nodiscard]] std::string kind_of(const Judgement& judgement);

/// Returns true if a smaller case fails as the original does: with the same kind, in the same output, and not
/// as a near miss if the original was far beyond its bound.
[[nodiscard]] bool fails_alike(const Judgement& found, const Judgement& smaller);

/// Shrinks a failing case by steps of its domain: one batch row and head, the plain layout, form and regime,
/// T at chunk edges, then smaller chunks and widths. Contract, law and kernel stay the same. A step begins
/// only if it can end within the budget, including the last check, but the case itself is run at least once.
/// If the smallest case fails only after others although `failing` fails alone too, each step is taken in a
/// process of its own. Throws NothingToShrink if `failing` does not fail at all, and Error if it is not a
/// valid case.
[[nodiscard]] Shrunk shrink(const Case& failing, const std::function<CaseResult(const Case&)>& run,
                            const ShrinkOptions& options = {});

}  // namespace samestate

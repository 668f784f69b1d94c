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
  double budget = 30.0;  ///< seconds; what was found by then is returned
  int reruns = 3;        ///< of the case found and of the smallest: they must agree
  /// Runs a case in a process that has run none before; empty: as `run`. What is found must fail there too:
  /// a kernel that keeps something from call to call fails after others what it passes alone.
  std::function<CaseResult(const Case&)> fresh = {};
  /// Once true no case is run, not even again: what was found by then is returned. Asked between runs.
  std::function<bool()> stop = {};
  /// The known faults that a failing case looks like (mutants_like), in `seconds`. The smallest case looks like some of those
  /// that the case found does, and like no other; empty: not asked.
  std::function<std::vector<std::string>(const Case&, double seconds)> looks_like = {};
};

/// The case does not fail when it is run again.
class NothingToShrink : public Error {
 public:
  using Error::Error;
};

/// The smallest case found that still fails alike.
struct Shrunk {
  Case smallest;
  CaseResult finding;     ///< of `smallest`; its verdict is flaky where re-runs disagree
  std::int64_t runs = 0;  ///< of the kernel
  double seconds = 0.0;
  bool complete = false;  ///< no smaller step fails; false: the budget or `stop` ended it
};

/// What kind of failure a judgement is; shrinking keeps it. The gates of one output are one kind: which of
/// row, head or worst case is exceeded first depends on sizes. Of named tensors the output is part of it.
[[nodiscard]] std::string kind_of(const Judgement& judgement);

/// Whether a smaller case fails as the one found does: of that kind, in the same output, and where that one was far beyond its
/// bound no near miss.
[[nodiscard]] bool fails_alike(const Judgement& found, const Judgement& smaller);

/// Shrinks a failing case by steps of its domain: one batch row and head, the plain layout, form and regime,
/// T at chunk edges, then smaller chunks and widths. Contract, law and kernel stay. No step
/// is begun that may not end within the budget, the last check included; the case itself is run at least once. Where the smallest case fails only after others and `failing` alone too, each step is
/// taken in a process of its own. Throws NothingToShrink where `failing` does not fail at all, Error where it is no case.
[[nodiscard]] Shrunk shrink(const Case& failing, const std::function<CaseResult(const Case&)>& run,
                            const ShrinkOptions& options = {});

}  // namespace samestate

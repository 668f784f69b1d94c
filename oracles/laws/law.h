#pragma once

#include <functional>

#include "oracles/batch.h"
#include "oracles/judge.h"

namespace samestate {

/// Runs the kernel under test on a batch along a path; a packed batch takes a path of one segment. Throws if
/// the kernel does not support the call.
using Runner = std::function<Outputs(const Batch&, const Path&)>;

struct LawTrace;

/// The kernel and the data to which a law of the recurrent family is applied (harness/cases/laws.h).
struct LawSubject {
  const Batch& batch;
  const Family& family;
  const Contract& contract;
  Index chunk = 0;  ///< 0 means the recurrent form
  Runner run;
  LawTrace* trace = nullptr;  ///< where to keep what was compared (oracles/laws/trace.h)
  Ranks ranks = {};           ///< for every call with chunks

  /// That many tokens in one call.
  [[nodiscard]] Path whole(Index tokens) const { return samestate::whole(tokens, chunk, ranks); }
};

}  // namespace samestate

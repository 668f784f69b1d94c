#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "oracles/batch.h"
#include "oracles/judge.h"

namespace samestate {

/// Runs the kernel under test on a batch along a path; a packed batch takes a path of one segment. Throws
/// where the kernel does not support the call.
using Runner = std::function<Outputs(const Batch&, const Path&)>;

struct LawTrace;

/// The kernel and the data on which a law is tried.
struct LawSubject {
  const Batch& batch;
  const Family& family;
  const Contract& contract;
  Index chunk = 0;  ///< 0: recurrent form
  Runner run;
  LawTrace* trace = nullptr;  ///< where to keep what was compared (oracles/laws/trace.h)
  Ranks ranks = {};           ///< of every call with chunks

  /// All of so many tokens in one call.
  [[nodiscard]] Path whole(Index tokens) const { return samestate::whole(tokens, chunk, ranks); }
};

/// What a law asks of a case before it can bite at all.
struct LawNeeds {
  bool decay = false;  ///< a system that reads g
  bool delta = false;  ///< one that reads beta
  bool state = false;  ///< an initial state
  bool heads = false;  ///< two key heads
};

/// A relation between runs of one kernel that must hold whatever the equations' values are. Compared within
/// the sum of the two runs' bounds (BOUNDS 10.2), or bit for bit where the law says so.
struct Law {
  std::string_view name;
  std::string_view ids;  ///< ledger ids (EQUATIONS 6 and 7.7)
  std::string_view summary;
  /// Why the law cannot bite on this subject ("B=1: nothing to permute"); empty where it can.
  std::string_view (*inapplicable)(const LawSubject&) = nullptr;
  Judgement (*judge)(const LawSubject&) = nullptr;
  LawNeeds needs = {};

  [[nodiscard]] bool fits(const Family& family) const {
    return (!needs.decay || family.gated) && (!needs.delta || family.delta);
  }
};

[[nodiscard]] std::span<const Law> laws();

/// Throws Error that lists the names.
[[nodiscard]] const Law& law_named(std::string_view name);

/// The law's judgement; vacuous, with the reason, where it is inapplicable or without effect on this subject.
[[nodiscard]] Judgement judge_law(const Law& law, const LawSubject& subject);

}  // namespace samestate

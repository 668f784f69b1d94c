#pragma once

#include <string>
#include <vector>

#include "harness/card/read_card.h"
#include "harness/explain/reading.h"
#include "harness/run/kernel_table.h"

namespace samestate {

/// A small call whose outputs distinguish conventions: integers and powers of two, dk = dv, several heads of
/// each kind, a scale that is not the default, states that are not symmetric, tokens whose norms are near
/// 1e-3 and 1e-6.
struct DiagnosticCall {
  std::string what;  ///< its purpose
  Batch batch;
  /// Made only for the readings that fit the other calls, between which it does not distinguish: decays of
  /// e^-1, e^-4, e^-8 and e^-60 by head, with one token that writes nothing, so that a limit on exponents
  /// shows.
  bool of_limits = false;
  std::string contract = {};  ///< the contract of the call; empty for the first of the kernel's row
  /// True if its scale, norm or map of heads, without which it is useless, is outside the limits, so that a
  /// refusal is legitimate.
  bool outside = false;
};
[[nodiscard]] std::vector<DiagnosticCall> diagnostic_calls(const Family& family);
/// The same calls, expecting the norm that the kernel's declaration states, with sizes, tokens, contract and
/// states moved into the declared limits and the `further` ones that the kernel has without declaring them. A
/// call for which no such sizes exist keeps its own. Sizes have no unit; with more than four channels the
/// others of q, k and the initial state are zero.
[[nodiscard]] std::vector<DiagnosticCall> diagnostic_calls(const Family& family, const KernelRow& kernel,
                                                           const DeclaredLimits& further = {});

/// A set of conventions that fits, or fits best.
struct FoundReading {
  std::vector<const Deviation*> deviations;  ///< empty for the canonical reading
  double distance = 0.0;                     ///< RMS of the differences, relative to the expected values
  double limit = kNoLimit;  ///< the lower limit of the exponents of the decay, as strong decays show it
};

struct Diagnosis {
  /// The smallest sets that fit: one, two, or three to kMostConventions conventions. Those that fit as well
  /// as the best cannot be distinguished.
  std::vector<FoundReading> fits;
  FoundReading nearest;  ///< the nearest of all, if none fits
  /// For the first one that fits: how far strong decays are off, taking into account a limit if one explains
  /// them.
  double strong_distance = 0.0;
  std::vector<std::string> refused;  ///< calls that were not run, and why
  bool nothing_ran = false;
};

/// A reading fits if its distance is below this: sixteen roundings to bf16.
inline constexpr double kFits = 16.0 / 512.0;

/// Public functions combine several conventions. Defects, which no declaration expresses, are tried two at a
/// time.
inline constexpr std::size_t kMostConventions = 5;

/// All sets of `count` conventions (deviations that a declaration can express), each about another aspect.
[[nodiscard]] std::vector<std::vector<const Deviation*>> conventions_by(
    const std::vector<const Deviation*>& all, std::size_t count);

/// `runs` are the results of diagnostic_calls, in their order.
[[nodiscard]] Diagnosis diagnose(const Family& family, const std::vector<DiagnosticCall>& calls,
                                 const std::vector<ProbeRun>& runs);

/// Runs the kernel on the call. If it refuses, or if a kernel in another process throws, the reason is stored
/// (ProbeRun::refused); what a kernel in this process throws is passed on.
[[nodiscard]] ProbeRun run_diagnostic(const KernelRow& kernel, const DiagnosticCall& call,
                                      const DeclaredLimits& further = {});

/// RMS of the differences over all calls, each output of each call relative to its `expected` values.
[[nodiscard]] double distance(const std::vector<Returned>& expected, const std::vector<Returned>& actual);

}  // namespace samestate

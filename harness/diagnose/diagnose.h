#pragma once

#include <string>
#include <vector>

#include "harness/card/read_card.h"
#include "harness/explain/reading.h"
#include "harness/run/kernel_table.h"

namespace samestate {

/// A small call whose outputs tell readings apart: integers and powers of two, dk = dv, several heads of each kind, a scale
/// that is no default, states that are not symmetric, tokens whose norms are near 1e-3 and 1e-6.
struct DiagnosticCall {
  std::string what;  ///< it is for
  Batch batch;
  /// Asked of the readings that fit the others, which it does not tell apart: decays of e^-1, e^-4, e^-8 and e^-60 by head, of
  /// one token that writes nothing, so that a limit of exponents shows.
  bool of_limits = false;
  std::string contract = {};  ///< under which it is called; empty: the first that the kernel's row promises
  /// True if its scale, norm or map of heads, without which it says nothing, lies outside the limits: it is refused by right.
  bool outside = false;
};
[[nodiscard]] std::vector<DiagnosticCall> diagnostic_calls(const Family& family);
/// The same, of whose outputs a norm in the kernel is expected as the kernel's declaration has it, with sizes, tokens, contract
/// and states moved into its limits and the `further` ones, of what it takes without saying so. A call for which there are no
/// such sizes keeps its own. Sizes have no unit; of more channels than four the others of q, k and the
/// initial state are zero.
[[nodiscard]] std::vector<DiagnosticCall> diagnostic_calls(const Family& family, const KernelRow& kernel,
                                                           const DeclaredLimits& further = {});

/// A reading that fits, or fits best.
struct FoundReading {
  std::vector<const Deviation*> deviations;  ///< none: the canonical reading
  double distance = 0.0;                     ///< RMS of the differences, of what was expected
  double limit = kNoLimit;  ///< below which it lets no exponent of the decay, as strong ones show
};

struct Diagnosis {
  /// The fewest that fit: one, two, or three to kMostConventions conventions; those that fit as well as the best does cannot be
  /// told apart.
  std::vector<FoundReading> fits;
  FoundReading nearest;  ///< of all, where none fits
  /// Of the first that fits, how far strong decays are off, a limit included where one explains them.
  double strong_distance = 0.0;
  std::vector<std::string> refused;  ///< calls that were not run, and why
  bool nothing_ran = false;
};

/// A reading fits whose distance is below: sixteen roundings to bf16.
inline constexpr double kFits = 16.0 / 512.0;

/// Public functions follow several conventions of their own; of defects, which no declaration says, two are tried at a time.
inline constexpr std::size_t kMostConventions = 5;

/// All sets of so many conventions (deviations that a declaration can say), each of another aspect.
[[nodiscard]] std::vector<std::vector<const Deviation*>> conventions_by(
    const std::vector<const Deviation*>& all, std::size_t count);

/// `runs`: of diagnostic_calls, in their order.
[[nodiscard]] Diagnosis diagnose(const Family& family, const std::vector<DiagnosticCall>& calls,
                                 const std::vector<ProbeRun>& runs);

/// Runs the kernel on the call. A refusal, and what a kernel of another process throws, is the reason why it did not run
/// (ProbeRun::refused); what one of this process throws is thrown.
[[nodiscard]] ProbeRun run_diagnostic(const KernelRow& kernel, const DiagnosticCall& call,
                                      const DeclaredLimits& further = {});

/// RMS of the differences over all calls, each output of each call relative to what `expected` has there.
[[nodiscard]] double distance(const std::vector<Returned>& expected, const std::vector<Returned>& actual);

}  // namespace samestate

#pragma once

#include <optional>
#include <vector>

#include "harness/cases/case_line.h"
#include "harness/cases/layout.h"
#include "harness/cases/system.h"
#include "oracles/path.h"
#include "reference/contract.h"

namespace samestate {

/// A case with everything that its line names looked up: the code that runs and judges it takes this and
/// looks up no names.
struct Resolved {
  /// Throws Error if the line is not a valid case: an unknown or unsuitable system, form, contract, regime,
  /// law or layout, or impossible sizes.
  explicit Resolved(const Case& c);

  Case c;
  const System* system = nullptr;
  const CaseForm* form = nullptr;
  const Contract* contract = nullptr;  ///< the named contract
  Contract promised;  ///< the contract of the kernel's call: with_l2norm of the named one if the case asks
                      ///< for the norm
  const Regime* regime = nullptr;
  const Law* law = nullptr;  ///< null means a comparison with the oracle
  Layout layout = Layout::dense;
  FinalState final_state = FinalState::apart;
  Index chunk = 0;  ///< tokens per chunk in calls that have chunks; 0 if none has

  /// True if no call of the case is chunked.
  [[nodiscard]] bool unchunked() const { return chunk == 0; }
  /// True if ranks divide value heads and not tokens.
  [[nodiscard]] bool divides_heads() const { return form->by_heads || c.cuts == kCutHeads; }
  /// How calls with chunks divide their tokens or heads.
  [[nodiscard]] Ranks ranks() const;
  /// How the case evaluates `tokens` consecutive tokens: a dense sequence, or all packed ones together
  /// (path_of_sequence gives each its part).
  [[nodiscard]] Path path(Index tokens) const;
};

/// True if each call of the case receives everything that it needs from earlier tokens as inputs (the keys
/// and values of an attention) and carries no state, so that the calls before it need not be made.
[[nodiscard]] bool gets_cache(const System& system, const Case& c);

/// The factor of the outputs of a recurrence in the case: its own, or else dk^-1/2 in fp32, for which a regime whose
/// numbers are exact has the next power of two.
[[nodiscard]] double scale_of(const Case& c, const Regime& regime);

/// nullopt if the line is not a valid case.
[[nodiscard]] std::optional<Resolved> resolved(const Case& c);
[[nodiscard]] bool possible(const Case& c);

/// The number of elements that a kernel of the case reads and writes.
[[nodiscard]] double size_of_case(const Resolved& r);

}  // namespace samestate

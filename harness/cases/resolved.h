#pragma once

#include <optional>
#include <vector>

#include "harness/cases/case_line.h"
#include "harness/cases/layout.h"
#include "harness/cases/system.h"
#include "oracles/path.h"
#include "reference/contract.h"

namespace samestate {

/// A case with everything that its line names looked up: what runs and judges it takes this and no name.
struct Resolved {
  /// Throws Error where the line is no case: system, form, contract, regime, law or layout that is not there
  /// or does not fit, sizes that are impossible.
  explicit Resolved(const Case& c);

  Case c;
  const System* system = nullptr;
  const CaseForm* form = nullptr;
  const Contract* contract = nullptr;  ///< the named one
  Contract promised;                   ///< of the kernel's call: with_l2norm of it where the case asks
  const Regime* regime = nullptr;
  const Law* law = nullptr;  ///< null: against the oracle
  Layout layout = Layout::dense;
  FinalState final_state = FinalState::apart;
  Index chunk = 0;  ///< tokens a chunk in the calls that have chunks; 0: none has

  /// Whether no call of the case is chunked.
  [[nodiscard]] bool unchunked() const { return chunk == 0; }
  /// Whether ranks divide value heads, not tokens.
  [[nodiscard]] bool divides_heads() const { return form->by_heads || c.cuts == kCutHeads; }
  /// How the calls with chunks divide their tokens, or heads.
  [[nodiscard]] Ranks ranks() const;
  /// How the case evaluates `tokens` in a row: a dense sequence, or all packed ones (path_of_sequence has what each has of it).
  [[nodiscard]] Path path(Index tokens) const;
};

/// Returns true if each call of the case receives all that it needs of earlier tokens as inputs (the keys and values of an
/// attention) and carries no state, so that the calls before it need not be made.
[[nodiscard]] bool gets_cache(const System& system, const Case& c);

/// Nothing where the line is no case.
[[nodiscard]] std::optional<Resolved> resolved(const Case& c);
[[nodiscard]] bool possible(const Case& c);

/// Elements that a kernel of the case reads and writes.
[[nodiscard]] double size_of_case(const Resolved& r);

}  // namespace samestate

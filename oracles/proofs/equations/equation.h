#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The ledger of equations, executable: every equation, recurrence, shape, count and claim of the five
/// documents is a row, and what the row says is computed when it is evaluated (DESIGN 7, `samestate
/// equations`).
namespace samestate {

/// What the ledger says of a statement (EQUATIONS 1).
enum class LedgerVerdict {
  ok,            ///< true as stated
  ok_qualified,  ///< true under a convention or premise that the row names
  incomplete,    ///< not computable as stated; the missing part is given
  ambiguous,     ///< several readings give different numbers; the resolution is given
  inconsistent,  ///< contradicts another statement of the same document
  erratum,       ///< false; the correct form is given
  untestable     ///< measurement, analogy or opinion
};

/// "OK", "OK*", "INCOMPLETE" ..: the ledger's own words.
[[nodiscard]] std::string_view name_of(LedgerVerdict verdict);

/// What came out of evaluating a row.
struct Finding {
  enum class Outcome {
    holds,                 ///< the statement was computed and is true
    erratum_demonstrated,  ///< the printed and the correct form were both computed and differ as the ledger
                           ///< says
    resolved,              ///< incomplete, ambiguous or inconsistent: the resolution was computed
    untestable,            ///< the reason is in `computed`, with what arithmetic there is
    failed                 ///< the computation contradicts the row
  };
  Outcome outcome = Outcome::failed;
  std::string computed;   ///< what was computed, with its numbers; same on every machine
  int checks = 0;         ///< comparisons that were made
  double residual = 0.0;  ///< the largest relative difference between things that must be equal to rounding
};

/// "holds", "erratum demonstrated", "resolved", "untestable", "failed".
[[nodiscard]] std::string_view name_of(Finding::Outcome outcome);

/// One row of the ledger.
struct Equation {
  std::string_view id;         ///< GDN-17, COST-31a ..
  std::string_view document;   ///< "000" .. "004"
  std::string_view lines;      ///< of the document, 1-based: "L77-78"
  std::string_view system;     ///< the stem of the reference that computes it
  std::string_view statement;  ///< what the document says
  LedgerVerdict verdict = LedgerVerdict::ok;
  Finding (*evaluate)() = nullptr;
};

/// All of them in the order of the ledger.
[[nodiscard]] std::span<const Equation> equations();

/// Which rows are wanted; an empty field is any.
struct EquationFilter {
  std::string document, system, verdict, id;
};

/// The rows that pass every field of the filter. Verdicts are written as name_of writes them, in any case.
/// Throws Error that lists the known values where a field names none, and where no row passes all of them.
[[nodiscard]] std::vector<const Equation*> select(const EquationFilter& filter);

/// Evaluates a row. What it throws is a finding too: failed, with the message.
[[nodiscard]] Finding evaluate(const Equation& equation);

/// The outcome that a row of this verdict has when its computation agrees with the ledger.
[[nodiscard]] Finding::Outcome expected_outcome(LedgerVerdict verdict);

}  // namespace samestate

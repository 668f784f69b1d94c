#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The ledger of equations, executable: every equation, recurrence, shape, count and claim of the five
/// documents is a row whose statement is computed when the row is evaluated (DESIGN 7, `samestate
/// equations`).
namespace samestate {

/// The ledger's verdict on a statement (EQUATIONS 1).
enum class LedgerVerdict {
  ok,            ///< true as stated
  ok_qualified,  ///< true under a convention or premise that the row names
  incomplete,    ///< not computable as stated; the missing part is given
  ambiguous,     ///< several readings give different numbers; the resolution is given
  inconsistent,  ///< contradicts another statement of the same document
  erratum,       ///< false; the correct form is given
  untestable     ///< measurement, analogy or opinion
};

/// The ledger's own words: "OK", "OK*", "INCOMPLETE" ...
[[nodiscard]] std::string_view name_of(LedgerVerdict verdict);

/// The result of evaluating a row.
struct Finding {
  enum class Outcome {
    holds,                 ///< the statement was computed and is true
    erratum_demonstrated,  ///< the printed and the correct form were both computed and differ as the ledger
                           ///< says
    resolved,              ///< incomplete, ambiguous or inconsistent: the resolution was computed
    untestable,            ///< the reason is in `computed`, with the arithmetic that is possible
    failed                 ///< the computation contradicts the row
  };
  Outcome outcome = Outcome::failed;
  std::string computed;   ///< what was computed, with its numbers; the same on every machine
  int checks = 0;         ///< number of comparisons made
  double residual = 0.0;  ///< the largest relative difference between things that must be equal up to
                          ///< rounding
};

/// "holds", "erratum demonstrated", "resolved", "untestable", "failed".
[[nodiscard]] std::string_view name_of(Finding::Outcome outcome);

/// One row of the ledger.
struct Equation {
  std::string_view id;         ///< for example GDN-17, COST-31a
  std::string_view document;   ///< "000" .. "004"
  std::string_view lines;      ///< lines of the document, 1-based: "L77-78"
  std::string_view system;     ///< stem of the reference header that computes it
  std::string_view statement;  ///< what the document says
  LedgerVerdict verdict = LedgerVerdict::ok;
  Finding (*evaluate)() = nullptr;
};

/// All rows in the order of the ledger.
[[nodiscard]] std::span<const Equation> equations();

/// Selects rows; an empty field accepts any.
struct EquationFilter {
  std::string document, system, verdict, id;
};

/// The rows that pass every field of the filter. Verdicts are written as name_of writes them, in upper or
/// lower case. Throws Error that lists the known values if a field matches none, and if no row passes all
/// fields.
[[nodiscard]] std::vector<const Equation*> select(const EquationFilter& filter);

/// Evaluates a row. An exception is a finding too: failed, with its message.
[[nodiscard]] Finding evaluate(const Equation& equation);

/// The outcome that a row with this verdict has if its computation agrees with the ledger.
[[nodiscard]] Finding::Outcome expected_outcome(LedgerVerdict verdict);

}  // namespace samestate

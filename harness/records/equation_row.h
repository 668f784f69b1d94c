#pragma once

#include <string>

namespace samestate {

/// A row of the ledger of equations and what came out of it, as plain data: reports read it.
struct EquationRow {
  std::string id;         ///< GDN-17, COST-31a ..
  std::string document;   ///< "000" .. "004"
  std::string title;      ///< of the document
  std::string lines;      ///< of the document: "L77-78"
  std::string system;     ///< the stem of the reference that computes it
  std::string statement;  ///< what the document says
  std::string verdict;    ///< the ledger's: OK, OK*, INCOMPLETE, AMBIGUOUS, INCONSISTENT, ERRATUM, UNTESTABLE
  std::string outcome;    ///< holds, erratum demonstrated, resolved, untestable, failed
  std::string computed;   ///< what was computed, with its numbers
  int checks = 0;         ///< comparisons that were made
  double residual = 0.0;  ///< the largest relative difference between things that must be equal to rounding
};

}  // namespace samestate

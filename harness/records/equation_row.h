#pragma once

#include <string>

namespace samestate {

/// A row of the ledger of equations and its evaluation, as plain data for reports.
struct EquationRow {
  std::string id;         ///< for example GDN-17, COST-31a
  std::string document;   ///< "000" .. "004"
  std::string title;      ///< of the document
  std::string lines;      ///< lines of the document: "L77-78"
  std::string system;     ///< stem of the reference header that computes it
  std::string statement;  ///< what the document says
  std::string verdict;    ///< the ledger's verdict: OK, OK*, INCOMPLETE, AMBIGUOUS, INCONSISTENT, ERRATUM,
                          ///< UNTESTABLE
  std::string outcome;    ///< holds, erratum demonstrated, resolved, untestable, failed
  std::string computed;   ///< what was computed, with its numbers
  int checks = 0;         ///< number of comparisons made
  double residual = 0.0;  ///< the largest relative difference between things that must be equal up to
                          ///< rounding
};

}  // namespace samestate

#include <algorithm>
#include <cctype>
#include <exception>

#include "oracles/proofs/equations/groups.h"
#include "reference/error.h"

namespace samestate {
namespace {

const std::vector<Equation>& table() {
  static const std::vector<Equation> rows = [] {
    std::vector<Equation> all;
    for (const auto group : {document_000_equations::rows, document_001_layer_equations::rows,
                             document_001_rule_equations::rows, document_002_equations::rows,
                             document_002_memory_equations::rows, document_003_input_equations::rows,
                             document_003_recurrence_equations::rows, document_003_output_equations::rows,
                             document_003_claim_equations::rows, document_004_equations::rows,
                             document_004_latent_equations::rows, document_004_scan_equations::rows}) {
      for (const Equation& row : group()) all.push_back(row);
    }
    return all;
  }();
  return rows;
}

std::string upper(std::string_view text) {
  std::string result;
  for (const char c : text) result += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

/// The letters before the number of an id.
std::string_view family_of(std::string_view id) { return id.substr(0, id.find('-')); }

/// Throws unless `wanted` is empty or one of the rows' values, which the message lists in order.
template <class Field>
void require_known(const std::string& what, const std::string& wanted, Field&& field) {
  std::vector<std::string> known;
  for (const Equation& row : table()) {
    const std::string value(field(row));
    if (wanted.empty() || upper(value) == upper(wanted)) return;
    if (std::find(known.begin(), known.end(), value) == known.end()) known.push_back(value);
  }
  std::string list;
  for (const std::string& value : known) list += (list.empty() ? "" : ", ") + value;
  throw Error(what + " " + wanted + ": the ledger has no such " + what + "; known: " + list);
}

/// The same for ids, of which there are too many for a line: those of the same family, or the families.
void require_known_id(const std::string& wanted) {
  require_known("family of ids", wanted.substr(0, wanted.find('-')),
                [](const Equation& row) { return family_of(row.id); });
  std::string list;
  for (const Equation& row : table()) {
    if (wanted.empty() || upper(row.id) == upper(wanted)) return;
    if (upper(family_of(row.id)) == upper(family_of(wanted)))
      list += (list.empty() ? "" : ", ") + std::string(row.id);
  }
  throw Error("id " + wanted + ": the ledger has no such row; known: " + list);
}

}  // namespace

std::string_view name_of(LedgerVerdict verdict) {
  switch (verdict) {
    case LedgerVerdict::ok:
      return "OK";
    case LedgerVerdict::ok_qualified:
      return "OK*";
    case LedgerVerdict::incomplete:
      return "INCOMPLETE";
    case LedgerVerdict::ambiguous:
      return "AMBIGUOUS";
    case LedgerVerdict::inconsistent:
      return "INCONSISTENT";
    case LedgerVerdict::erratum:
      return "ERRATUM";
    case LedgerVerdict::untestable:
      return "UNTESTABLE";
  }
  return "";
}

std::string_view name_of(Finding::Outcome outcome) {
  switch (outcome) {
    case Finding::Outcome::holds:
      return "holds";
    case Finding::Outcome::erratum_demonstrated:
      return "erratum demonstrated";
    case Finding::Outcome::resolved:
      return "resolved";
    case Finding::Outcome::untestable:
      return "untestable";
    case Finding::Outcome::failed:
      return "failed";
  }
  return "";
}

Finding::Outcome expected_outcome(LedgerVerdict verdict) {
  switch (verdict) {
    case LedgerVerdict::ok:
    case LedgerVerdict::ok_qualified:
      return Finding::Outcome::holds;
    case LedgerVerdict::incomplete:
    case LedgerVerdict::ambiguous:
    case LedgerVerdict::inconsistent:
      return Finding::Outcome::resolved;
    case LedgerVerdict::erratum:
      return Finding::Outcome::erratum_demonstrated;
    case LedgerVerdict::untestable:
      return Finding::Outcome::untestable;
  }
  return Finding::Outcome::failed;
}

std::span<const Equation> equations() { return table(); }

std::vector<const Equation*> select(const EquationFilter& filter) {
  const auto document = [](const Equation& row) { return row.document; };
  const auto system = [](const Equation& row) { return row.system; };
  const auto verdict = [](const Equation& row) { return name_of(row.verdict); };
  require_known("document", filter.document, document);
  require_known("system", filter.system, system);
  require_known("verdict", filter.verdict, verdict);
  require_known_id(filter.id);
  const auto passes = [](std::string_view wanted, std::string_view value) {
    return wanted.empty() || upper(wanted) == upper(value);
  };
  std::vector<const Equation*> rows;
  for (const Equation& row : table()) {
    if (passes(filter.document, row.document) && passes(filter.system, row.system) &&
        passes(filter.verdict, name_of(row.verdict)) && passes(filter.id, row.id)) {
      rows.push_back(&row);
    }
  }
  if (rows.empty()) throw Error("equations: no row passes all of these filters together; leave one out");
  return rows;
}

Finding evaluate(const Equation& equation) {
  try {
    return equation.evaluate();
  } catch (const std::exception& error) {
    return {Finding::Outcome::failed, error.what(), 0, 0.0};
  }
}

}  // namespace samestate

#pragma once

#include <span>
#include <string>

#include "harness/records/equation_row.h"

/// The ledger, executed: what `samestate equations` shows.
namespace samestate {

/// For a terminal, wrapped, by document.
[[nodiscard]] std::string equations_text(std::span<const EquationRow> rows);
/// The page docs/lookup/equations.md.
[[nodiscard]] std::string equations_markdown(std::span<const EquationRow> rows);
/// An array of objects, one a row; what `samestate report --equations` reads.
[[nodiscard]] std::string equations_json(std::span<const EquationRow> rows);

}  // namespace samestate

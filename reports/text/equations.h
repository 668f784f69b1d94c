#pragma once

#include <span>
#include <string>

#include "harness/records/equation_row.h"

/// The output of `samestate equations`: the executed ledger.
namespace samestate {

/// For a terminal, wrapped, by document.
[[nodiscard]] std::string equations_text(std::span<const EquationRow> rows);
/// The page docs/equations.md.
[[nodiscard]] std::string equations_markdown(std::span<const EquationRow> rows);
/// An array with one object per row, which `samestate report --equations` reads.
[[nodiscard]] std::string equations_json(std::span<const EquationRow> rows);

}  // namespace samestate

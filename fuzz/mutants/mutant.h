#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/run/run_case.h"

namespace samestate {

/// A correct kernel with one bug put back that really shipped (the catalogue's M ids), with a fault in its
/// equations that nobody is known to have shipped (F; F01..F08
/// are those that the fused kernels invite), or a subject that cheats the gate (H1.7). The gate must
/// kill it.
struct Mutant {
  std::string bug;    ///< M01..M90, F, F01..F08 or H1.7
  std::string name;   ///< unique: fault.system.form, as in no_delta_term.delta_rule.chunked
  std::string fault;  ///< snake_case, the same in all systems and forms
  std::string system;
  std::string form;
  std::string summary;                    ///< what is wrong, one line
  std::string equivalent;                 ///< why no gate can tell it from the correct kernel; empty: it can
  std::vector<Kernel> rows;               ///< the mutated kernel, then the correct one of the other form
  std::vector<OperatorKernel> operators;  ///< of an operator: the mutated kernel alone
  bool smoke = false;                     ///< one of the fixed subset that CI runs
  bool hostile = false;                   ///< ends, holds or damages the process that runs it

  [[nodiscard]] const std::string& kernel() const {
    return rows.empty() ? operators.front().name : rows.front().name;
  }
  [[nodiscard]] KernelTable table() const { return KernelTable(rows, operators); }
};

/// All of them, by file and fault.
[[nodiscard]] std::span<const Mutant> all_mutants();

/// Throws Error with the nearest names.
[[nodiscard]] const Mutant& mutant_named(std::string_view name);

/// A catalogue entry without a mutant here, and why.
struct NotModelled {
  std::string_view bug;
  std::string_view reason;
};
[[nodiscard]] std::span<const NotModelled> not_modelled();

/// The evaluator that every mutant of the recurrent family is made of, without a fault: rows
/// evaluator.SYSTEM.FORM and evaluator_fused.SYSTEM.FORM of the four systems.
[[nodiscard]] std::span<const Kernel> unmutated_kernels();

}  // namespace samestate

#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/run/run_case.h"

namespace samestate {

/// A correct kernel with one planted bug. The bug is one that really shipped (the catalogue's M ids), a fault
/// in the equations that is not known to have shipped (F; F01..F08 are those that the fused kernels invite),
/// or a subject that cheats the gate (H1.7). The gate must kill it.
struct Mutant {
  std::string bug;    ///< M01..M90, F, F01..F08 or H1.7
  std::string name;   ///< unique: fault.system.form, for example no_delta_term.delta_rule.chunked
  std::string fault;  ///< snake_case, the same in all systems and forms
  std::string system;
  std::string form;
  std::string summary;       ///< what is wrong, one line
  std::string equivalent;    ///< why no gate can distinguish it from the correct kernel; empty if one can
  std::vector<Kernel> rows;  ///< the mutated kernel, followed by the correct one of the other form
  std::vector<OperatorKernel> operators;  ///< for an operator: only the mutated kernel
  std::vector<CallKernel> calls = {};     ///< for a backward pass: likewise
  bool smoke = false;                     ///< part of the fixed subset that CI runs
  bool hostile = false;                   ///< ends, hangs or damages the process that runs it

  [[nodiscard]] const std::string& kernel() const {
    return !rows.empty() ? rows.front().name : !calls.empty() ? calls.front().name : operators.front().name;
  }
  /// The contracts that the mutated kernel promises.
  [[nodiscard]] const std::vector<std::string>& contracts() const {
    return !rows.empty()    ? rows.front().contracts
           : !calls.empty() ? calls.front().contracts
                            : operators.front().contracts;
  }
  [[nodiscard]] KernelTable table() const {
    return calls.empty() ? KernelTable(rows, operators) : KernelTable(calls);
  }
};

/// All mutants, by file and fault.
[[nodiscard]] std::span<const Mutant> all_mutants();

/// The mutant of that name. Throws Error with the nearest names.
[[nodiscard]] const Mutant& mutant_named(std::string_view name);

/// A catalogue entry without a mutant here, and the reason.
struct NotModelled {
  std::string_view bug;
  std::string_view reason;
};
[[nodiscard]] std::span<const NotModelled> not_modelled();

/// The evaluator from which every mutant of the recurrent family is made, without a fault: rows
/// evaluator.SYSTEM.FORM and evaluator_fused.SYSTEM.FORM of the four systems.
[[nodiscard]] std::span<const Kernel> unmutated_kernels();

}  // namespace samestate

#pragma once

#include <span>

#include "oracles/proofs/equations/equation.h"

/// The rows of each document in the order of the ledger; equations() has all of them.
namespace samestate {

[[nodiscard]] std::span<const Equation> document_000_equations();
[[nodiscard]] std::span<const Equation> document_001_layer_equations();       ///< CFG-5 .. GDN-30
[[nodiscard]] std::span<const Equation> document_001_rule_equations();        ///< GDN-31 .. COST-6
[[nodiscard]] std::span<const Equation> document_002_equations();             ///< RMS-5 .. LA-4
[[nodiscard]] std::span<const Equation> document_002_memory_equations();      ///< RET-1 .. GDN-52
[[nodiscard]] std::span<const Equation> document_003_input_equations();       ///< DEND-1 .. DEND-20
[[nodiscard]] std::span<const Equation> document_003_recurrence_equations();  ///< DEND-21 .. DEND-39
[[nodiscard]] std::span<const Equation> document_003_output_equations();      ///< DEND-40 .. COST-21
[[nodiscard]] std::span<const Equation> document_003_claim_equations();       ///< DEND-50 .. DEND-58
[[nodiscard]] std::span<const Equation> document_004_equations();             ///< MOE-1 .. MOE-17
[[nodiscard]] std::span<const Equation> document_004_latent_equations();      ///< COST-34 .. COST-39
[[nodiscard]] std::span<const Equation> document_004_scan_equations();        ///< SSM-1 .. SSM-13

}  // namespace samestate

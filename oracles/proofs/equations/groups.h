#pragma once

#include <span>

#include "oracles/proofs/equations/equation.h"

/// The rows of each document in the order of the ledger; equations() has all of them.
namespace samestate {

namespace document_000_equations {
[[nodiscard]] std::span<const Equation> rows();
}
namespace document_001_layer_equations {
[[nodiscard]] std::span<const Equation> rows();  ///< CFG-5 .. GDN-30
}
namespace document_001_rule_equations {
[[nodiscard]] std::span<const Equation> rows();  ///< GDN-31 .. COST-6
}
namespace document_002_equations {
[[nodiscard]] std::span<const Equation> rows();  ///< RMS-5 .. LA-4
}
namespace document_002_memory_equations {
[[nodiscard]] std::span<const Equation> rows();  ///< RET-1 .. GDN-52
}
namespace document_003_input_equations {
[[nodiscard]] std::span<const Equation> rows();  ///< DEND-1 .. DEND-20
}
namespace document_003_recurrence_equations {
[[nodiscard]] std::span<const Equation> rows();  ///< DEND-21 .. DEND-39
}
namespace document_003_output_equations {
[[nodiscard]] std::span<const Equation> rows();  ///< DEND-40 .. COST-21
}
namespace document_003_claim_equations {
[[nodiscard]] std::span<const Equation> rows();  ///< DEND-50 .. DEND-58
}
namespace document_004_equations {
[[nodiscard]] std::span<const Equation> rows();  ///< MOE-1 .. MOE-17
}
namespace document_004_latent_equations {
[[nodiscard]] std::span<const Equation> rows();  ///< COST-34 .. COST-39
}
namespace document_004_scan_equations {
[[nodiscard]] std::span<const Equation> rows();  ///< SSM-1 .. SSM-13
}

}  // namespace samestate

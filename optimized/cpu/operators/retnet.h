#pragma once

#include "optimized/operator_kernel.h"

namespace samestate::cpu {

/// Normalised retention in chunks, each row over its own scale and then normalised without epsilon
/// (EQUATIONS 5.11). A row of zeros leaves no number.
[[nodiscard]] Outcome normalised_retention_chunks(const OperatorArguments& call, const Contract& contract);

/// The normalised recurrence on the state of plain retention: the scale is divided out where a row is read
/// and where the state is left.
[[nodiscard]] Outcome normalised_retention_tokens(const OperatorArguments& call, const Contract& contract);

/// Multi-scale retention: projections, rotation, the chunked core, norm, gate, projection. A low-precision
/// contract keeps projections and the core's output in its format. Unsupported: an odd dk.
[[nodiscard]] Outcome multi_scale_retention_chunks(const OperatorArguments& call, const Contract& contract);

}  // namespace samestate::cpu

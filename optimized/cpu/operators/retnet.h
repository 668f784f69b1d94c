#pragma once

#include "optimized/operator_kernel.h"

namespace samestate::cpu {

/// Normalised retention in chunks; each row is divided by its own scale and then normalised without epsilon
/// (EQUATIONS 5.11). A row of zeros gives NaN.
[[nodiscard]] Outcome normalised_retention_chunks(const OperatorArguments& call, const Contract& contract);

/// The normalised recurrence on the state of plain retention: the scale is divided out when a row is read,
/// and when the state is written at the end.
[[nodiscard]] Outcome normalised_retention_tokens(const OperatorArguments& call, const Contract& contract);

/// Multi-scale retention: projections, rotation, the chunked core, norm, gate and projection. A low-precision
/// contract keeps projections and the output of the core in its format. Unsupported for an odd dk.
[[nodiscard]] Outcome multi_scale_retention_chunks(const OperatorArguments& call, const Contract& contract);

}  // namespace samestate::cpu

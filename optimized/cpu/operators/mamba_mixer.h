#pragma once

#include "optimized/operator_kernel.h"

namespace samestate::cpu {

/// The Mamba mixer, with its scan in chunks. Throws Error for chunk < 1.
[[nodiscard]] Outcome mamba_mixer_chunks(const OperatorArguments& call, const Contract& contract);

/// The Mamba-2 mixer, with its heads in chunks of the quadratic dual. Throws Error for chunk < 1.
[[nodiscard]] Outcome mamba2_mixer_chunks(const OperatorArguments& call, const Contract& contract);

}  // namespace samestate::cpu

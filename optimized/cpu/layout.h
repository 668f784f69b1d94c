#pragma once

#include "optimized/call.h"

/// Loads what the kernels of the family read from one head: keys as the contract has them, and decays whose
/// sums keep their bits.
namespace samestate::cpu {

/// Row t of q or k as the contract has it: l2-normalised if the call asks for it, then rounded to `format`.
void load_key(const Rows<const float>& x, std::int64_t t, std::int64_t dk, bool l2norm, Format format,
              float* to);

/// A smaller g is replaced by this: e^-128 is below every fp32 number, so the state is forgotten either way,
/// and sums of g keep the bits of the tokens after a hard reset (g = -1e38; BUGS M09).
inline constexpr float kHardReset = -128.0F;
[[nodiscard]] inline float clamped_decay(float g) { return g < kHardReset ? kHardReset : g; }

}  // namespace samestate::cpu

#pragma once

#include <cstdint>
#include <vector>

#include "reference/costs.h"

/// The model that documents 000 and 001 describe, and the sizes at which their shapes are tested.
namespace samestate::equation_model {

using Extents = std::vector<std::int64_t>;

inline const costs::Qwen3NextConfig kModel;
inline const costs::Qwen3NextShape kShape = costs::shape(kModel);
inline constexpr std::int64_t kBatch = 2;
inline constexpr std::int64_t kLength = 5;

}  // namespace samestate::equation_model

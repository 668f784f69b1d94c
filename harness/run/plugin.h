#pragma once

#include <filesystem>
#include <vector>

#include "optimized/kernel.h"
#include "optimized/operator_kernel.h"

namespace samestate {

/// What a plugin adds to the two tables.
struct PluginRows {
  std::vector<Kernel> kernels;
  std::vector<OperatorKernel> operators;
};

/// The rows of a user's shared library (optimized/plugin.h). The library stays loaded while the process
/// lives. Throws Error where it cannot be loaded, lacks the functions that it must have, was built against
/// another layout, or adds no row.
[[nodiscard]] PluginRows load_plugin(const std::filesystem::path& path);

}  // namespace samestate

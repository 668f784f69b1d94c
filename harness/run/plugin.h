#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "optimized/kernel.h"
#include "optimized/operator_kernel.h"

namespace samestate {

/// The functions of a plugin that list rows (optimized/plugin.h), by which a system says of what kind its kernels are.
inline constexpr std::string_view kFamilyRows = "samestate_plugin_kernels";
inline constexpr std::string_view kTensorRows = "samestate_plugin_operator_kernels";

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

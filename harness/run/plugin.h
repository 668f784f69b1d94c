#pragma once

#include <filesystem>
#include <vector>

#include "optimized/call_kernel.h"

namespace samestate {

/// The rows of a user's shared library (optimized/plugin.h). The library stays loaded while the process
/// lives. Throws Error if it cannot be loaded, lacks a required function, was built against another layout,
/// or adds no row.
[[nodiscard]] std::vector<CallKernel> load_plugin(const std::filesystem::path& path);

}  // namespace samestate

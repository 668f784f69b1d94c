#pragma once

#include <filesystem>
#include <vector>

#include "optimized/kernel.h"

namespace samestate {

/// The rows of a user's shared library (optimized/plugin.h). The library stays loaded while the process
/// lives. Throws Error where it cannot be loaded, lacks the two functions, or was built against another
/// layout.
[[nodiscard]] std::vector<Kernel> load_plugin(const std::filesystem::path& path);

}  // namespace samestate

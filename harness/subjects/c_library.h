#pragma once

#include <filesystem>

#include "harness/subjects/subject.h"

namespace samestate {

/// Whether the file is a shared library that defines samestate_subject_declare (optimized/subject.h).
[[nodiscard]] bool is_c_subject(const std::filesystem::path& path);

/// Its kernels, which are called in the calling process. The library stays loaded. Throws Error, that holds the path, where
/// it cannot be loaded, lacks a function or declares what is none.
[[nodiscard]] Subject load_c_subject(const std::filesystem::path& path);

}  // namespace samestate

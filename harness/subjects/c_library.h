#pragma once

#include <filesystem>
#include <string>

#include "harness/subjects/subject.h"

namespace samestate {

/// Whether the file is a shared library that defines samestate_subject_declare (optimized/subject.h). Loads it in the calling
/// process.
[[nodiscard]] bool is_c_subject(const std::filesystem::path& path);

/// What a library in C declares, and how it is called.
struct CSubject {
  std::string declaration;  ///< as parse_ready reads it
  SubjectCall call;
};

/// Loads it in the calling process, where it stays loaded, and asks it what it declares. Throws Error, that holds the path,
/// where it cannot be loaded, lacks a function or declares what is none.
[[nodiscard]] CSubject open_c_subject(const std::filesystem::path& path);

/// Its kernels, which are called in the calling process. Throws what open_c_subject throws.
[[nodiscard]] Subject load_c_subject(const std::filesystem::path& path);

}  // namespace samestate

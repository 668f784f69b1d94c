#pragma once

#include <filesystem>
#include <string>

#include "harness/subjects/subject.h"

namespace samestate {

/// True if the file is a shared library that defines samestate_subject_declare (optimized/subject.h). Loads
/// it in the calling process.
[[nodiscard]] bool is_c_subject(const std::filesystem::path& path);

/// The declaration of a C library, and the function that calls it.
struct CSubject {
  std::string declaration;  ///< in the format of parse_ready
  SubjectCall call;
};

/// Loads it in the calling process, where it stays loaded, and asks for its declaration. Throws Error, with
/// the path, if it cannot be loaded, lacks a function, or its declaration is invalid.
[[nodiscard]] CSubject open_c_subject(const std::filesystem::path& path);

/// Its kernels, which are called in the calling process. Throws what open_c_subject throws.
[[nodiscard]] Subject load_c_subject(const std::filesystem::path& path);

}  // namespace samestate

#pragma once

#include <filesystem>
#include <string>

#include "harness/subjects/subject.h"

namespace samestate {

/// A shared library of kernels, either a C++ plugin or a C library, as the judge knows it. Its code never
/// runs in the calling process: a child loads it, asks for its rows and returns them as data, and each
/// process that calls a kernel loads the library itself, after its fork. Threads that start when it is loaded
/// therefore exist in the process that calls, and whatever a library does to its process (exit, a crash,
/// handlers, the working folder, control registers) ends with that process.
struct Library {
  bool in_c = false;  ///< it defines samestate_subject_declare
  /// Its rows; for a plugin `kernels` and `about` are empty.
  Subject subject;
  std::string
      problem;  ///< why it has none: it cannot be loaded, ended its process, or took too long; otherwise
                ///< empty
};

/// True if the file starts like a shared library or program of this system (ELF). Loads nothing.
[[nodiscard]] bool is_elf(const std::filesystem::path& path);

/// The declaration of the library. In `patience`, start bounds the loading, here and in each process that
/// calls, and stop abandons it. Throws Error only if no process can be created.
[[nodiscard]] Library declared_library(const std::filesystem::path& path, const SubjectPatience& patience);

}  // namespace samestate

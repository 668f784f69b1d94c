#pragma once

#include <filesystem>
#include <string>

#include "harness/subjects/subject.h"

namespace samestate {

/// A shared library of kernels, a plugin in C++ or a library in C, as the judge knows it. Its code never runs in the calling
/// process: a child loads it, asks it for its rows and hands them over as data, and each process that calls a kernel loads the
/// library itself, after its fork. So threads that start when it is loaded are there in the process that calls, and what a
/// library does to its process (exit, a crash, handlers, the working folder, control registers) ends with that process.
struct Library {
  bool in_c = false;  ///< it defines samestate_subject_declare
  /// Its rows; of a plugin `kernels` and `about` are empty.
  Subject subject;
  std::string
      problem;  ///< why it has none: it cannot be loaded, ended its process or took too long; else empty
};

/// Whether the file begins as a shared library or a program of this system does (ELF). Loads nothing.
[[nodiscard]] bool is_elf(const std::filesystem::path& path);

/// What the library declares. `patience`: start bounds the loading, here and in each process that calls; stop gives it up.
/// Throws Error only where no process can be made.
[[nodiscard]] Library declared_library(const std::filesystem::path& path, const SubjectPatience& patience);

}  // namespace samestate

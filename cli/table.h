#pragma once

#include <string>
#include <vector>

#include "harness/run/run_case.h"

namespace samestate::cli {

/// The kernels of this build and of the named plugins. Throws Error.
[[nodiscard]] KernelTable kernel_table(const std::vector<std::string>& plugins);

/// What a record says of them: "libmine.so (0123456789abcdef), ..", with a hash of each file's bytes, since a build has
/// no version. Throws Error.
[[nodiscard]] std::string plugin_identities(const std::vector<std::string>& plugins);

/// The options that load those plugins again: " --plugin FILE" for each.
[[nodiscard]] std::string plugin_options(const std::vector<std::string>& plugins);

/// The name of the accelerator that this build could run on, empty where there is none. A process of its own
/// looks for it: one that forks workers must not have called a GPU itself.
struct Accelerator {
  std::string name, driver, toolkit;
};
[[nodiscard]] Accelerator accelerator();

/// Throws Error for a case that no kernel of the table can run, and where its kernel does not promise its contract:
/// what it returns would be judged by a promise that it never made.
void require_promise(const Case& c, const KernelTable& table);

/// The exit code of a set of verdicts.
[[nodiscard]] int exit_code_of(Verdict verdict);

}  // namespace samestate::cli

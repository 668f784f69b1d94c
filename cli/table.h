#pragma once

#include <string>
#include <vector>

#include "harness/run/run_case.h"

namespace samestate::cli {

/// The kernels of this build and of the named plugins. Throws Error.
[[nodiscard]] KernelTable kernel_table(const std::vector<std::string>& plugins);

/// The options that load those plugins again: " --plugin FILE" for each.
[[nodiscard]] std::string plugin_options(const std::vector<std::string>& plugins);

/// The name of the accelerator that this build could run on, empty where there is none.
struct Accelerator {
  std::string name, driver, toolkit;
};
[[nodiscard]] Accelerator accelerator();

/// The exit code of a set of verdicts.
[[nodiscard]] int exit_code_of(Verdict verdict);

}  // namespace samestate::cli

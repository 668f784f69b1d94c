#include <fmt/format.h>

#include "cli/commands.h"
#ifdef SAMESTATE_HAVE_CUDA
#include "optimized/cuda/cuda_kernels.h"
#endif

namespace samestate::cli {

Command add_probe(CLI::App& app) {
  app.footer(
      "Measures the constants that the bounds otherwise take from documentation: how many products "
      "a tensor core adds exactly,\n"
      "if it truncates, and the errors of the exponentials. Prints one JSON object; docs/probe.md "
      "records the results.");
  return [] {
#ifdef SAMESTATE_HAVE_CUDA
    const std::string json = probe_json();
    fmt::print("{}\n", json);
    return static_cast<int>(json.find("\"no_device\"") == std::string::npos ? kPass : kNothingRan);
#else
    fmt::print("{{\"no_device\": \"this build has no CUDA kernels\"}}\n");
    return static_cast<int>(kNothingRan);
#endif
  };
}

}  // namespace samestate::cli

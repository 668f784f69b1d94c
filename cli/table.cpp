#include "cli/table.h"

#include "cli/commands.h"
#include "harness/run/plugin.h"
#ifdef SAMESTATE_HAVE_CUDA
#include "optimized/cuda/cuda_kernels.h"
#endif

namespace samestate::cli {

KernelTable kernel_table(const std::vector<std::string>& plugins) {
  KernelTable table(kernels(), operator_kernels());
  for (const std::string& plugin : plugins) {
    const PluginRows rows = load_plugin(plugin);
    table.add(rows.kernels);
    table.add(rows.operators);
  }
  return table;
}

std::string plugin_options(const std::vector<std::string>& plugins) {
  std::string text;
  for (const std::string& plugin : plugins) text += " --plugin " + plugin;
  return text;
}

Accelerator accelerator() {
#ifdef SAMESTATE_HAVE_CUDA
  if (const auto device = cuda_device()) return {device->name, device->driver, device->runtime};
#endif
  return {};
}

int exit_code_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass:
      return kPass;
    case Verdict::fail:
      return kFail;
    case Verdict::vacuous:
      return kVacuous;
    case Verdict::flaky:
      return kFlaky;
    case Verdict::crash:
    case Verdict::timeout:
      return kCrash;
    case Verdict::unsupported:
    case Verdict::skipped:
      return kNothingRan;
  }
  return kCrash;
}

}  // namespace samestate::cli

// A kernel that really crashes, hangs and exits, for some shapes each; it is right for all others.
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "optimized/plugin.h"

namespace {

const samestate::Kernel& base() {
  for (const samestate::Kernel& kernel : samestate::kernels()) {
    if (kernel.name == "cpu.gated_delta_rule.recurrent") return kernel;
  }
  std::abort();
}

/// A segmentation fault under the sanitizers too.
__attribute__((no_sanitize("address", "undefined"))) void store_nowhere() {
  volatile int* volatile nowhere = nullptr;
  *nowhere = 1;
}

samestate::Outcome run(const samestate::Arguments& a, const samestate::Contract& contract) {
  const std::int64_t tokens = a.q.shape[1];
  const std::int64_t width = a.v.shape[3];
  if (width % 4 == 3 && tokens > 2) store_nowhere();
  if (a.v.shape[2] >= 3 && tokens > 4) std::exit(0);
  const bool hangs =
      a.head_map == samestate::HeadMap::tiled && !a.initial_state.present() && a.q.shape[0] > 1;
  while (hangs && tokens > 1) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  return base().run(a, contract);
}

}  // namespace

int samestate_plugin_abi() { return samestate::plugin_abi; }

void samestate_plugin_kernels(std::vector<samestate::Kernel>* rows) {
  rows->push_back(
      {"crashing.gated_delta_rule.recurrent", "gated_delta_rule", "recurrent", "cpu", {"fp32"}, run});
}

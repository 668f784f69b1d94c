// Kernels for tests/cli/interrupt_test.sh: wrong at once, wrong and slow, and one that sleeps at one width.
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "optimized/kernel.h"
#include "optimized/plugin.h"

namespace {

const samestate::Kernel& base(const std::string& name) {
  for (const samestate::Kernel& kernel : samestate::kernels()) {
    if (kernel.name == name) return kernel;
  }
  throw std::runtime_error("no " + name);
}

samestate::Outcome wrong(const samestate::Arguments& a, const samestate::Contract& contract) {
  const samestate::Outcome outcome = base("cpu.gated_delta_rule.recurrent").run(a, contract);
  for (std::int64_t b = 0; b < a.o.shape[0] && a.o.shape[1] > 0; ++b) a.o(b, 0, 0, 0) += 1.0F;
  return outcome;
}

samestate::Outcome slow(const samestate::Arguments& a, const samestate::Contract& contract) {
  std::this_thread::sleep_for(std::chrono::seconds(1));
  return wrong(a, contract);
}

samestate::Outcome sleeping(const samestate::Arguments& a, const samestate::Contract& contract) {
  if (a.v.shape[3] == 64) std::this_thread::sleep_for(std::chrono::minutes(5));
  return base("cpu.gated_delta_rule.chunked").run(a, contract);
}

}  // namespace

int samestate_plugin_abi() { return samestate::plugin_abi; }

void samestate_plugin_kernels(std::vector<samestate::Kernel>* rows) {
  const auto add = [&](const char* name, const char* form, auto function) {
    rows->push_back({std::string(name) + ".gated_delta_rule." + form,
                     "gated_delta_rule",
                     form,
                     "cpu",
                     {"fp32"},
                     function});
  };
  add("wrong", "recurrent", wrong);
  add("slow", "recurrent", slow);
  add("sleeping", "chunked", sleeping);
}

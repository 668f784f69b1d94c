// A kernel for tests/cli/card_test.sh that others might have written: it rounds beta k to bf16 and says so to nobody.
#include <stdexcept>
#include <string>
#include <vector>

#include "optimized/kernel.h"
#include "optimized/plugin.h"

namespace {

samestate::Outcome foreign(const samestate::Arguments& a, const samestate::Contract& called) {
  samestate::Contract contract = called;
  contract.beta_k = samestate::Format::bf16;
  for (const samestate::Kernel& kernel : samestate::kernels()) {
    if (kernel.name == "cpu.gated_delta_rule.chunked") return kernel.run(a, contract);
  }
  throw std::runtime_error("no base");
}

}  // namespace

int samestate_plugin_abi() { return samestate::plugin_abi; }

void samestate_plugin_kernels(std::vector<samestate::Kernel>* rows) {
  const auto add = [&](const char* name, const char* contract) {
    rows->push_back({std::string(name) + ".gated_delta_rule.chunked",
                     "gated_delta_rule",
                     "chunked",
                     "cpu",
                     {contract},
                     foreign});
  };
  add("nearest", "bf16+card:nearest");
  add("wrong", "bf16");
  add("right", "bf16+beta_k:bf16");
}

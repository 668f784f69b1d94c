// Kernels for tests/cli/card_test.sh as other people might write them: they round beta k to bf16 without
// declaring it, or keep the weights of a softmax in fp32, or promise that and store them. One of them waits
// in the cases of the gate, whose lengths no probe has, and notes that in a file.
#include <chrono>
#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "optimized/kernel.h"
#include "optimized/operator_kernel.h"
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

samestate::Outcome waiting(const samestate::Arguments& a, const samestate::Contract& called) {
  constexpr std::int64_t kTokensOfTheGate = 192;
  if (a.q.shape[1] == kTokensOfTheGate) {
    std::ofstream("waits") << "yes\n";
    std::this_thread::sleep_for(std::chrono::seconds(2));
  }
  return foreign(a, called);
}

/// Attention whose weights have the format of `weights` before they multiply the values, whatever the contract says.
template <samestate::Format weights>
samestate::Outcome attention(const samestate::OperatorArguments& a, const samestate::Contract& called) {
  samestate::Contract contract = called;
  contract.P = weights;
  for (const samestate::OperatorKernel& kernel : samestate::operator_kernels()) {
    if (kernel.name == "cpu.softmax_attention.online") return kernel.run(a, contract);
  }
  throw std::runtime_error("no base");
}

}  // namespace

int samestate_plugin_abi() { return samestate::plugin_abi; }

void samestate_plugin_kernels(std::vector<samestate::Kernel>* rows) {
  const auto add = [&](const char* name, const char* contract, auto kernel) {
    rows->push_back({std::string(name) + ".gated_delta_rule.chunked",
                     "gated_delta_rule",
                     "chunked",
                     "cpu",
                     {contract},
                     kernel});
  };
  add("nearest", "bf16+card:nearest", foreign);
  add("wrong", "bf16", foreign);
  add("right", "bf16+beta_k:bf16", foreign);
  add("waits", "bf16", waiting);
}

void samestate_plugin_operator_kernels(std::vector<samestate::OperatorKernel>* rows) {
  const std::string switched = "bf16+softmax_attention.weights:fp32";
  const auto add = [&](const char* name, const std::string& contract, auto kernel) {
    rows->push_back({std::string(name) + ".softmax_attention.online",
                     "softmax_attention",
                     "online",
                     "cpu",
                     {contract},
                     kernel});
  };
  add("kept", switched, attention<samestate::Format::fp32>);
  add("stored", switched, attention<samestate::Format::bf16>);
  add("plain", "bf16", attention<samestate::Format::bf16>);
}

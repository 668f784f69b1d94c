// Kernels that really crash, hang and exit, for some shapes each; they are right for all others.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "optimized/plugin.h"

namespace {

const samestate::Kernel& base(const char* name = "cpu.gated_delta_rule.recurrent") {
  for (const samestate::Kernel& kernel : samestate::kernels()) {
    if (kernel.name == name) return kernel;
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

void sleep_on() {
  while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
}

/// Recursion without an end that the compiler sees.
__attribute__((noinline)) int deeper(volatile int* from) {
  volatile int here[1000] = {*from};
  return here[0] < 0 ? 0 : deeper(here) + here[999];
}

/// Past the end of a block, over what the allocator keeps there and looks at when it gets the block back.
__attribute__((no_sanitize("address", "undefined"))) void spoil_the_heap() {
  std::vector<char> block(5000);
  volatile char* at = block.data();
  for (int i = 5000; i < 5064; ++i) at[i] = 1;
}

/// The width of a value head says how it ends.
samestate::Outcome deadly(const samestate::Arguments& a, const samestate::Contract& contract) {
  volatile int none = 0;
  switch (a.v.shape[3]) {
    case 101:
      ::_exit(3);
    case 102:
      return deeper(&none) == 0 ? samestate::Outcome{} : base().run(a, contract);
    case 103:
      spoil_the_heap();
      break;
    case 104:
      std::abort();
    case 105:
      std::exit(0);
    case 106:
      store_nowhere();
      break;
    case 107:
      sleep_on();
      break;
    default:
      break;
  }
  return base().run(a, contract);
}

/// The same in chunks, at widths of a sweep.
samestate::Outcome deadly_chunks(const samestate::Arguments& a, const samestate::Contract& contract) {
  if (a.v.shape[3] == 16) store_nowhere();
  if (a.v.shape[3] == 32) std::exit(0);
  if (a.v.shape[3] == 64) sleep_on();
  return base("cpu.gated_delta_rule.chunked").run(a, contract);
}

/// Right in one thread; two that meet in it crash.
samestate::Outcome unsafe(const samestate::Arguments& a, const samestate::Contract& contract) {
  static std::atomic<int> inside{0};
  ++inside;
  for (int i = 0; i < 100 && inside < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (inside > 1) store_nowhere();
  --inside;
  return base().run(a, contract);
}

samestate::Outcome hangs(const samestate::Arguments& a, const samestate::Contract& contract) {
  if (a.v.shape[3] > 0) sleep_on();
  return base().run(a, contract);
}

/// Prints much, as compilers do; at one width it says why before it crashes.
samestate::Outcome chatty(const samestate::Arguments& a, const samestate::Contract& contract) {
  std::printf("%s\nwidth %d\n", std::string(20'000, '.').c_str(), static_cast<int>(a.v.shape[3]));
  if (a.v.shape[3] == 106) {
    std::printf("no room for width 106\n");
    store_nowhere();
  }
  return base(a.chunk > 0 ? "cpu.gated_delta_rule.chunked" : "cpu.gated_delta_rule.recurrent")
      .run(a, contract);
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
  add("crashing", "recurrent", run);
  add("deadly", "recurrent", deadly);
  add("deadly", "chunked", deadly_chunks);
  add("unsafe", "recurrent", unsafe);
  add("hanging", "recurrent", hangs);
  add("chatty", "recurrent", chatty);
  add("chatty", "chunked", chatty);
}

// One of another system.
void samestate_plugin_operator_kernels(std::vector<samestate::OperatorKernel>* rows) {
  for (samestate::OperatorKernel row : samestate::operator_kernels()) {
    if (row.name != "cpu.rms_norm.fused") continue;
    row.name = "other.rms_norm.fused";
    row.contracts = {"fp32"};
    rows->push_back(row);
  }
}

// Kernels of a cuda device on the stand-in for the driver (fake_driver.cpp): right, but for what they do on some devices.
//   sound      on every device the same bits
//   skewed     on device 1 the last bit of one element of the state is another
//   restless   other bits in each call, whatever the device
//   wrong      on device 1 every output is wrong: a device that computes wrongly
//   losing     in its third call on device 1 that device is lost; LOSS says how it shows: answer (no_device), throw, die
#include <dlfcn.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>

#include "optimized/plugin.h"
#include "tests/cli/cuda_driver.h"

namespace {

using namespace samestate::driver;
using samestate::Arguments;
using samestate::Contract;
using samestate::Outcome;

/// The number of the device that this process sees first; below 0: it sees none.
int device() {
  static const int found = [] {
    void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
    int number = -1;
    const auto init = reinterpret_cast<Init>(::dlsym(driver, "cuInit"));
    const auto get = reinterpret_cast<DeviceGet>(::dlsym(driver, "cuDeviceGet"));
    return init(0) == kSuccess && get(&number, 0) == kSuccess ? number : -1;
  }();
  return found;
}

std::string lost_file() { return std::string(std::getenv("FAKE_LOST")) + "/" + std::to_string(device()); }

Outcome right(const Arguments& a, const Contract& contract) {
  if (device() < 0) return {Outcome::Kind::no_device, "no CUDA device"};
  for (const samestate::Kernel& kernel : samestate::kernels()) {
    if (kernel.name == "cpu.gated_delta_rule.recurrent") return kernel.run(a, contract);
  }
  std::abort();
}

/// The next float of an element.
void nudge(float& x) { x = std::nextafter(x, 2.0F * x + 1.0F); }

/// Returns an element for a sequence that has tokens: a state to which nothing was added is the initial one
/// bit for bit.
float* element(const Arguments& a) {
  const bool copied = a.cu_seqlens.present() ? a.cu_seqlens(0) == a.cu_seqlens(1) : a.q.shape[1] == 0;
  const bool none = !a.final_state.present() || a.final_state.size() == 0 || copied;
  return none ? nullptr : &a.final_state(0, 0, 0, 0);
}

Outcome skewed(const Arguments& a, const Contract& contract) {
  Outcome outcome = right(a, contract);
  if (float* const x = element(a); x != nullptr && device() == 1) nudge(*x);
  return outcome;
}

Outcome restless(const Arguments& a, const Contract& contract) {
  Outcome outcome = right(a, contract);
  // As sums by atomics do: by what happens to come first.
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  if (float* const x = element(a); x != nullptr)
    *x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(*x) ^ (static_cast<std::uint32_t>(now / 64) & 3U));
  return outcome;
}

Outcome wrong(const Arguments& a, const Contract& contract) {
  Outcome outcome = right(a, contract);
  if (float* const x = element(a); x != nullptr && device() == 1) *x += 1.0F + std::fabs(*x);
  return outcome;
}

Outcome losing(const Arguments& a, const Contract& contract) {
  static int calls = 0;
  const std::string how = std::getenv("LOSS");
  const bool lost = device() == 1 && (++calls >= 3 || ::access(lost_file().c_str(), F_OK) == 0);
  if (!lost) return right(a, contract);
  std::ofstream(lost_file()) << "gone\n";
  if (how == "die") ::_exit(9);
  if (how == "throw") throw std::runtime_error("cudaMemcpy: unknown error");
  return {Outcome::Kind::no_device, "no CUDA device: unknown error"};
}

}  // namespace

int samestate_plugin_abi() { return samestate::plugin_abi; }

void samestate_plugin_kernels(std::vector<samestate::Kernel>* rows) {
  const auto add = [&](const char* name, auto run) {
    rows->push_back({std::string(name) + ".gated_delta_rule.recurrent",
                     "gated_delta_rule",
                     "recurrent",
                     "cuda",
                     {"fp32"},
                     run});
  };
  add("sound", right);
  add("skewed", skewed);
  add("restless", restless);
  add("wrong", wrong);
  add("losing", losing);
}

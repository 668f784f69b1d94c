// A kernel on a CUDA device that makes an illegal memory access for some shapes, after which the context of
// its process is dead. It goes through the driver alone, so that it builds without the CUDA Toolkit, and is
// right for all other shapes: its data make a way to the device and back before they are used.
#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "optimized/plugin.h"
#include "tests/cli/cuda_driver.h"

namespace {

using namespace samestate::driver;

constexpr const char* kStoreNowhere = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry store_nowhere() {
  .reg .b64 %a;
  .reg .b32 %x;
  mov.u64 %a, 16;
  mov.u32 %x, 1;
  st.global.u32 [%a], %x;
  ret;
}
)";

void check(int status, const char* call) {
  if (status != kSuccess)
    throw std::runtime_error(std::string(call) + ": CUDA error " + std::to_string(status));
}

/// The driver of this process, started at the first call.
class Driver {
 public:
  Driver() : library_(::dlopen("libcuda.so.1", RTLD_NOW)) {
    int device = 0;
    void* context = nullptr;
    present_ = library_ != nullptr && of<Init>("cuInit")(0) == kSuccess &&
               of<DeviceGet>("cuDeviceGet")(&device, 0) == kSuccess;
    if (!present_) return;
    check(of<ContextRetain>("cuDevicePrimaryCtxRetain")(&context, device), "cuDevicePrimaryCtxRetain");
    context_ = context;
  }
  [[nodiscard]] bool present() const { return present_; }
  /// A context is current in one thread; every thread that calls needs it.
  void use_here() const { check(of<ContextSet>("cuCtxSetCurrent")(context_), "cuCtxSetCurrent"); }

  template <class Function>
  [[nodiscard]] Function of(const char* name) const {
    void* found = ::dlsym(library_, name);
    if (found == nullptr) throw std::runtime_error(std::string("the driver lacks ") + name);
    return reinterpret_cast<Function>(found);
  }

  /// Returns the values after a round trip over the device.
  [[nodiscard]] std::vector<float> there_and_back(const std::vector<float>& values) const {
    const std::size_t bytes = values.size() * sizeof(float);
    unsigned long long there = 0;
    std::vector<float> out(values.size());
    check(of<Allocate>("cuMemAlloc_v2")(&there, bytes), "cuMemAlloc");
    check(of<ToDevice>("cuMemcpyHtoD_v2")(there, values.data(), bytes), "cuMemcpyHtoD");
    check(of<ToHost>("cuMemcpyDtoH_v2")(out.data(), there, bytes), "cuMemcpyDtoH");
    check(of<Free>("cuMemFree_v2")(there), "cuMemFree");
    return out;
  }

  /// The illegal access. Says nothing of it.
  void store_nowhere() const {
    void* module = nullptr;
    void* function = nullptr;
    check(of<ModuleLoad>("cuModuleLoadData")(&module, kStoreNowhere), "cuModuleLoadData");
    check(of<FunctionGet>("cuModuleGetFunction")(&function, module, "store_nowhere"), "cuModuleGetFunction");
    check(of<Launch>("cuLaunchKernel")(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
          "cuLaunchKernel");
  }

 private:
  void* library_;
  bool present_ = false;
  void* context_ = nullptr;
};

samestate::Outcome run(const samestate::Arguments& a, const samestate::Contract& contract) {
  static const Driver driver;
  if (!driver.present()) return {samestate::Outcome::Kind::no_device, "no CUDA device"};
  driver.use_here();
  const std::int64_t width = a.v.shape[3];
  const std::int64_t tokens = a.q.shape[1];
  if (width % 4 == 3 && tokens > 2) {
    driver.store_nowhere();
    return {};  // as a kernel that does not look at its errors
  }
  if (a.v.shape[2] >= 3 && tokens > 4) {
    driver.store_nowhere();
    check(driver.of<Synchronize>("cuCtxSynchronize")(), "cuCtxSynchronize");
  }
  std::vector<float> sizes{static_cast<float>(width), static_cast<float>(tokens)};
  if (driver.there_and_back(sizes) != sizes) throw std::runtime_error("the device lost what it was given");
  for (const samestate::Kernel& kernel : samestate::kernels()) {
    if (kernel.name == "cpu.gated_delta_rule.recurrent") return kernel.run(a, contract);
  }
  std::abort();
}

}  // namespace

int samestate_plugin_abi() { return samestate::plugin_abi; }

void samestate_plugin_kernels(std::vector<samestate::Kernel>* rows) {
  rows->push_back(
      {"device.gated_delta_rule.recurrent", "gated_delta_rule", "recurrent", "cuda", {"fp32"}, run});
}

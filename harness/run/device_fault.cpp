#include "harness/run/device_fault.h"

#include <dlfcn.h>

#include <algorithm>
#include <iterator>

namespace samestate {
namespace {

/// Errors of the driver API after which "the process must be terminated and relaunched" (CUDA Driver API,
/// CUresult), and the error for a context that is gone.
constexpr int kFatal[] = {214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719};

}  // namespace

std::string device_fault() {
  // Use the driver only if it is already loaded: a process that forks must not be the one that starts it.
  void* driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return {};
  const auto current = reinterpret_cast<int (*)(void**)>(::dlsym(driver, "cuCtxGetCurrent"));
  const auto synchronize = reinterpret_cast<int (*)()>(::dlsym(driver, "cuCtxSynchronize"));
  const auto name_of_error = reinterpret_cast<int (*)(int, const char**)>(::dlsym(driver, "cuGetErrorName"));
  // If this thread has no context there is nothing to wait for, and compute-sanitizer would report an error.
  void* context = nullptr;
  const bool has_context = current != nullptr && current(&context) == 0 && context != nullptr;
  const int status = has_context && synchronize ? synchronize() : 0;
  std::string fault;
  if (std::find(std::begin(kFatal), std::end(kFatal), status) != std::end(kFatal)) {
    const char* name = nullptr;
    if (name_of_error) (void)name_of_error(status, &name);
    fault = name ? name : "CUDA error " + std::to_string(status);
  }
  ::dlclose(driver);
  return fault;
}

}  // namespace samestate

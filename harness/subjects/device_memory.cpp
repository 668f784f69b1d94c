#include "harness/subjects/device_memory.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "harness/run/call_loop.h"
#include "harness/run/guard.h"

namespace samestate {
namespace {

using Pointer = unsigned long long;  ///< CUdeviceptr in the driver API

constexpr int kOutOfMemory = 2;
constexpr unsigned kNonBlocking = 1;
constexpr unsigned char kStale = 0xff;
/// How long the inputs are held back: longer than the launch of a kernel that does not wait for them takes.
constexpr std::chrono::microseconds kBehind{200};

[[noreturn]] void no_device(const std::string& why) { throw Unavailable({Outcome::Kind::no_device, why}); }

/// The driver's functions under their names in the library.
class Driver {
 public:
  /// Returns the driver of this process, which the first call starts.
  static const Driver& of_this_process() {
    static const Driver driver;
    if (!driver.missing_.empty()) no_device(driver.missing_);
    return driver;
  }

  /// Every thread that makes calls needs the context.
  void use_here() const { check(set_context(context_), "cuCtxSetCurrent"); }

  void check(int status, const char* call) const {
    if (status == 0) return;
    const char* name = nullptr;
    if (error_name != nullptr) (void)error_name(status, &name);
    throw std::runtime_error(
        fmt::format("{}: {}", call, name != nullptr ? name : fmt::format("CUDA error {}", status)));
  }

  int (*set_context)(void*) = nullptr;
  int (*synchronize)() = nullptr;
  int (*error_name)(int, const char**) = nullptr;
  int (*allocate)(Pointer*, std::size_t) = nullptr;
  int (*free)(Pointer) = nullptr;
  int (*fill)(Pointer, unsigned char, std::size_t, void*) = nullptr;
  int (*to_device)(Pointer, const void*, std::size_t, void*) = nullptr;
  int (*to_host)(void*, Pointer, std::size_t, void*) = nullptr;
  int (*across)(Pointer, Pointer, std::size_t, void*) = nullptr;
  int (*make_stream)(void**, unsigned) = nullptr;
  int (*end_stream)(void*) = nullptr;
  int (*await_stream)(void*) = nullptr;
  int (*on_host)(void*, void (*)(void*), void*) = nullptr;

 private:
  Driver() {
    library_ = ::dlopen("libcuda.so.1", RTLD_NOW);
    if (library_ == nullptr) {
      missing_ = "no CUDA driver (libcuda.so.1) on this machine";
      return;
    }
    int (*init)(unsigned) = nullptr;
    int (*get)(int*, int) = nullptr;
    int (*retain)(void**, int) = nullptr;
    find(init, "cuInit");
    find(get, "cuDeviceGet");
    find(retain, "cuDevicePrimaryCtxRetain");
    find(set_context, "cuCtxSetCurrent");
    find(synchronize, "cuCtxSynchronize");
    find(error_name, "cuGetErrorName");
    find(allocate, "cuMemAlloc_v2");
    find(free, "cuMemFree_v2");
    find(fill, "cuMemsetD8Async");
    find(to_device, "cuMemcpyHtoDAsync_v2");
    find(to_host, "cuMemcpyDtoHAsync_v2");
    find(across, "cuMemcpyDtoDAsync_v2");
    find(make_stream, "cuStreamCreate");
    find(end_stream, "cuStreamDestroy_v2");
    find(await_stream, "cuStreamSynchronize");
    find(on_host, "cuLaunchHostFunc");
    if (!missing_.empty()) return;
    int device = 0;
    if (init(0) != 0 || get(&device, 0) != 0) {
      missing_ = "the CUDA driver sees no device";
    } else if (const int status = retain(&context_, device); status != 0) {
      missing_ = fmt::format("cuDevicePrimaryCtxRetain: CUDA error {}", status);
    }
  }

  template <class Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(library_, name));
    if (function == nullptr && missing_.empty())
      missing_ = fmt::format("the CUDA driver has no {}: it is of before CUDA 10", name);
  }

  void* library_ = nullptr;
  void* context_ = nullptr;
  std::string missing_;
};

void keep_back(void* /*nothing*/) { std::this_thread::sleep_for(kBehind); }

}  // namespace

DeviceMemory::DeviceMemory(std::span<const std::byte> bytes) : size_(bytes.size()) {
  const Driver& driver = Driver::of_this_process();
  driver.use_here();
  try {
    driver.check(driver.make_stream(&stream_, kNonBlocking), "cuStreamCreate");
    for (Pointer* where : {&there_, &staged_}) {
      const int status = driver.allocate(where, size_);
      if (status == kOutOfMemory) no_device(fmt::format("no {} bytes of memory on the device", size_));
      driver.check(status, "cuMemAlloc");
    }
    driver.check(driver.fill(there_, kStale, size_, stream_), "cuMemsetD8Async");
    driver.check(driver.to_device(staged_, bytes.data(), size_, stream_), "cuMemcpyHtoDAsync");
    driver.check(driver.await_stream(stream_), "cuStreamSynchronize");
    driver.check(driver.on_host(stream_, keep_back, nullptr), "cuLaunchHostFunc");
    driver.check(driver.across(there_, staged_, size_, stream_), "cuMemcpyDtoDAsync");
  } catch (...) {
    free();
    throw;
  }
}

DeviceMemory::~DeviceMemory() { free(); }

/// If a kernel broke the context, nothing can be freed; its process ends.
void DeviceMemory::free() {
  const Driver& driver = Driver::of_this_process();
  if (stream_ != nullptr) {
    (void)driver.await_stream(stream_);
    (void)driver.end_stream(stream_);
  }
  for (const Pointer one : {there_, staged_}) {
    if (one != 0) (void)driver.free(one);
  }
}

std::byte* DeviceMemory::begin() const { return reinterpret_cast<std::byte*>(there_); }

void DeviceMemory::fetch(std::span<std::byte> bytes) {
  const Driver& driver = Driver::of_this_process();
  const auto copy = [&](std::byte* to) {
    driver.check(driver.to_host(to, there_, size_, stream_), "cuMemcpyDtoHAsync");
    driver.check(driver.await_stream(stream_), "cuStreamSynchronize");
  };
  copy(bytes.data());
  driver.check(driver.synchronize(), "cuCtxSynchronize");
  std::vector<std::byte> later(size_);
  copy(later.data());
  const auto [before, now] = std::mismatch(bytes.begin(), bytes.end(), later.begin());
  if (before != bytes.end())
    throw Trespass(
        "the kernel was still writing when its stream was idle: all it does belongs on "
        "samestate_call::stream, "
        "or has to be waited for there");
}

}  // namespace samestate

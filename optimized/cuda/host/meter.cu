#include "optimized/cuda/host/meter.h"

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <limits>
#include <string_view>

namespace samestate::cuda {
namespace {

// Enumerations are passed as the integers that they are in NVML's C interface, so that a build does not need
// its header.
constexpr int kSuccess = 0;
constexpr int kMultiprocessors = 1;  ///< NVML_CLOCK_SM

struct Reason {
  std::uint64_t bits;
  std::string_view name;
};
/// nvmlClocksEventReason..: any other reason (idle, a requested clock) does not slow a running kernel down.
constexpr Reason kReasons[] = {{0x04 | 0x80, "power"}, {0x20 | 0x40, "heat"}, {0x08, "hardware"}};

template <class Function>
bool find(void* library, Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Meter::Meter() {
  static void* const library =
      dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);  // stays: others may use it
  int (*init)() = nullptr;
  int (*by_bus)(const char*, void**) = nullptr;
  if (!library || !find(library, init, "nvmlInit_v2") ||
      !find(library, by_bus, "nvmlDeviceGetHandleByPciBusId_v2"))
    return;
  // The library counts initialisations; it is never shut down, since another thread's meter may be in use.
  static const int initialised = init();
  int current = 0;
  char bus[32] = {};
  if (initialised != kSuccess || cudaGetDevice(&current) != cudaSuccess ||
      cudaDeviceGetPCIBusId(bus, sizeof bus, current) != cudaSuccess || by_bus(bus, &device_) != kSuccess) {
    device_ = nullptr;
    return;
  }
  find(library, clock_info_, "nvmlDeviceGetClockInfo");
  find(library, energy_, "nvmlDeviceGetTotalEnergyConsumption");
  if (!find(library, reasons_, "nvmlDeviceGetCurrentClocksEventReasons"))
    find(library, reasons_, "nvmlDeviceGetCurrentClocksThrottleReasons");
}

void Meter::read() {
  if (!device_) return;
  unsigned value = 0;
  if (clock_info_ && clock_info_(device_, kMultiprocessors, &value) == kSuccess)
    clocks_.push_back(1e6 * value);
  unsigned long long reasons = 0;
  if (reasons_ && reasons_(device_, &reasons) == kSuccess) slowed_ |= reasons;
}

double Meter::clock() const { return median(clocks_); }

Meter::Reading Meter::energy() const {
  Reading reading;
  unsigned long long millijoules = 0;
  if (energy_ && energy_(device_, &millijoules) == kSuccess)
    reading.joules = 1e-3 * static_cast<double>(millijoules);
  reading.at = std::chrono::steady_clock::now();
  return reading;
}
void Meter::begin() { begin_ = energy(); }
void Meter::end() { end_ = energy(); }

double Meter::power() const {
  const std::chrono::duration<double> seconds = end_.at - begin_.at;
  if (seconds < kShortest) return std::numeric_limits<double>::quiet_NaN();
  return (end_.joules - begin_.joules) / seconds.count();
}

std::string Meter::slowed() const {
  std::string text;
  for (const Reason& reason : kReasons) {
    if (slowed_ & reason.bits) (text += text.empty() ? "" : ", ") += reason.name;
  }
  return text;
}

}  // namespace samestate::cuda

#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

/// Clock and power of the device while something runs on it, from the driver's management library (NVML), if
/// it is installed.
namespace samestate::cuda {

class Meter {
 public:
  /// A meter of the current device. It reports nothing if the library is missing or refuses.
  Meter();
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  /// begin() and end() enclose the work that is measured.
  void begin();
  void end();
  /// Takes one reading of the clock and its throttle reasons; costs the host some microseconds to
  /// milliseconds.
  void read();

  /// Multiprocessor clock in Hz: the median of the readings so far; NaN without any.
  [[nodiscard]] double clock() const;
  /// Power in W: the energy from begin() to end() divided by the time. (The driver's own power figure is a
  /// mean over a second, most of which passed before the work.) NaN if the interval is shorter than
  /// kShortest: the energy counter may tick only every 100 ms.
  [[nodiscard]] double power() const;
  static constexpr std::chrono::milliseconds kShortest{200};
  /// Returns what throttled the clock in any reading, separated by commas: "power", "heat", "hardware"; empty
  /// if nothing is known to have.
  [[nodiscard]] std::string slowed() const;

 private:
  void* device_ = nullptr;
  int (*clock_info_)(void*, int, unsigned*) = nullptr;
  int (*energy_)(void*, unsigned long long*) = nullptr;  ///< mJ since the driver was loaded
  int (*reasons_)(void*, unsigned long long*) = nullptr;
  struct Reading {
    double joules = std::numeric_limits<double>::quiet_NaN();
    std::chrono::steady_clock::time_point at;
  };
  [[nodiscard]] Reading energy() const;

  std::vector<double> clocks_;
  Reading begin_, end_;
  std::uint64_t slowed_ = 0;
};

}  // namespace samestate::cuda

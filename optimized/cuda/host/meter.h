#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

/// Clock and power of the device while something runs on it, from the driver's management library (NVML), where there is one.
namespace samestate::cuda {

class Meter {
 public:
  /// Of the current device. Says nothing of it where the library is missing or refuses.
  Meter();
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  /// Around what is metered.
  void begin();
  void end();
  /// A reading of clock and brakes, of now; takes some microseconds to milliseconds of the host.
  void read();

  /// Of the multiprocessors, Hz: the median of the readings so far; NaN without any.
  [[nodiscard]] double clock() const;
  /// W, the energy from begin() to end() over the time: the driver's own figure of power is the mean of a second, most of which is
  /// of what ran before. NaN where less than kShortest lies between: the counter of energy ticks every 100 ms at worst.
  [[nodiscard]] double power() const;
  static constexpr std::chrono::milliseconds kShortest{200};
  /// What held the clock back in any of them, one comma between: "power", "heat", "hardware"; empty: nothing that is known of.
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

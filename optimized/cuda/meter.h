#pragma once

#include <cstdint>
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

  /// A reading, of now; takes some microseconds to milliseconds of the host.
  void read();

  /// Medians of the readings so far; NaN without any.
  [[nodiscard]] double clock() const;  ///< of the multiprocessors, Hz
  [[nodiscard]] double power() const;  ///< W
  /// What held the clock back in any of them, one comma between: "power", "heat", "hardware"; empty: nothing that is known of.
  [[nodiscard]] std::string slowed() const;

 private:
  void* device_ = nullptr;
  int (*clock_info_)(void*, int, unsigned*) = nullptr;
  int (*power_usage_)(void*, unsigned*) = nullptr;
  int (*reasons_)(void*, unsigned long long*) = nullptr;
  std::vector<double> clocks_, powers_;
  std::uint64_t slowed_ = 0;
};

}  // namespace samestate::cuda

#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/run/host_devices.h"

namespace samestate {

/// The GPUs of this host that processes share, one per process, and which of them were lost. A lost device
/// stays lost for every pool that uses this object.
class Devices {
 public:
  /// True if a process with this CUDA_VISIBLE_DEVICES sees a device now.
  using Look = std::function<bool(const std::optional<std::string>& visible)>;
  /// Called with a sentence about a device that is lost.
  using Say = std::function<void(const std::string&)>;
  static constexpr int kNone = -1;

  explicit Devices(std::vector<HostDevice> all, Look look = {}, Say say = {});

  [[nodiscard]] std::span<const HostDevice> all() const { return all_; }
  [[nodiscard]] const HostDevice& at(int number) const { return all_[static_cast<std::size_t>(number)]; }
  /// The number of the device with that HostDevice::id; kNone if there is none.
  [[nodiscard]] int numbered(const std::string& id) const;
  [[nodiscard]] bool is_left(int number) const;
  [[nodiscard]] int left() const;
  /// The available device with the smallest of `loads`, the first of several; kNone if none is left.
  [[nodiscard]] int least(const std::vector<int>& loads) const;

  /// CUDA_VISIBLE_DEVICES for a process on that device; for kNone a value that shows no device. nullopt means
  /// that of the caller, who sees only this device.
  [[nodiscard]] std::optional<std::string> visible_to(int number) const;

  /// The same for repeating a case: for the device with that HostDevice::id; nullopt if there is none.
  [[nodiscard]] std::optional<std::string> visible_as(const std::string& id) const;

  /// True if the device is lost. Called when something that ran on it gives reason to suspect this: it
  /// checks, and remembers the result. A message in `said` about a device that turned out to be there ("needs
  /// compute capability 9.0") does not cause another check for a while; ending or breaking a process (`said`
  /// empty) does each time.
  bool is_gone(int number, const std::string& said);

  /// One sentence for each lost device, in order.
  [[nodiscard]] const std::vector<std::string>& losses() const { return losses_; }

 private:
  using Clock = std::chrono::steady_clock;

  std::vector<HostDevice> all_;
  std::vector<bool> left_;
  Look look_;
  Say say_;
  /// devices that were there when that was said
  std::map<std::pair<int, std::string>, Clock::time_point> seen_;
  std::vector<std::string> losses_;
};

/// Asks the driver in a process of its own. Empty if it does not answer within a minute, which counts as no
/// driver.
[[nodiscard]] std::vector<HostDevice> look_for_devices();

/// A Devices::Look that asks the driver. Each device is checked alone, because from a list the driver shows
/// none after the first that is gone.
[[nodiscard]] bool sees_a_device(const std::optional<std::string>& visible);

}  // namespace samestate

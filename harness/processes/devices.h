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

/// The GPUs of this host that processes share, each process one of them, and which of them were lost. A device that is
/// lost stays so: for every pool that has these.
class Devices {
 public:
  /// Whether a process whose CUDA_VISIBLE_DEVICES is this sees a device now.
  using Look = std::function<bool(const std::optional<std::string>& visible)>;
  /// Called with a sentence about a device that is lost.
  using Say = std::function<void(const std::string&)>;
  static constexpr int kNone = -1;

  explicit Devices(std::vector<HostDevice> all, Look look = {}, Say say = {});

  [[nodiscard]] std::span<const HostDevice> all() const { return all_; }
  [[nodiscard]] const HostDevice& at(int number) const { return all_[static_cast<std::size_t>(number)]; }
  /// By HostDevice::id; kNone where there is none.
  [[nodiscard]] int numbered(const std::string& id) const;
  [[nodiscard]] bool is_left(int number) const;
  [[nodiscard]] int left() const;
  /// Of those that are left the one that `loads` counts least for, the first of several; kNone where none is left.
  [[nodiscard]] int least(const std::vector<int>& loads) const;

  /// CUDA_VISIBLE_DEVICES of a process on that device; of kNone one that shows no device. Empty: that of the caller, who
  /// sees this device alone.
  [[nodiscard]] std::optional<std::string> visible_to(int number) const;

  /// The same for what repeats a case there: of the device with that HostDevice::id; empty for one that is none.
  [[nodiscard]] std::optional<std::string> visible_as(const std::string& id) const;

  /// Whether the device is lost, as what ran on it gives reason to think: looks, and from then on it is. What was `said`
  /// of a device that is there, as "needs compute capability 9.0", does not make it look again for a while; what ended a
  /// process or broke it (`said` empty) does each time.
  bool is_gone(int number, const std::string& said);

  /// A sentence for each that was lost, in order.
  [[nodiscard]] const std::vector<std::string>& losses() const { return losses_; }

 private:
  using Clock = std::chrono::steady_clock;

  std::vector<HostDevice> all_;
  std::vector<bool> left_;
  Look look_;
  Say say_;
  std::map<std::pair<int, std::string>, Clock::time_point> seen_;  ///< there, when that was said of it
  std::vector<std::string> losses_;
};

/// Asks the driver in a process of its own. Empty where it does not answer for a minute: such a driver is none.
[[nodiscard]] std::vector<HostDevice> look_for_devices();

/// Devices::Look, that asks the driver. Each device is asked for alone, since of a list the driver shows none behind the
/// first that is gone.
[[nodiscard]] bool sees_a_device(const std::optional<std::string>& visible);

}  // namespace samestate

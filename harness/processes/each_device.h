#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/processes/devices.h"
#include "harness/records/record.h"

namespace samestate {

/// The same case on every device of a host: what it wrote must agree bit for bit. A case is given here with its record
/// from one device, comes back as runs on the others, and is finished when all of these are taken.
class EachDevice {
 public:
  explicit EachDevice(const Devices& devices) : devices_(&devices) {}

  /// A case and the device, by HostDevice::id, that it is to be run on.
  struct Run {
    std::size_t index;
    std::string device;
  };

  /// Whether the case waits for other devices from now on: it was judged, wrote something on one of several, and its
  /// record is no failure yet.
  bool begin(std::size_t index, const Record& record);
  /// The next run, in the order in which cases came.
  [[nodiscard]] std::optional<Run> next();
  [[nodiscard]] bool waits(std::size_t index) const { return open_.contains(index); }

  /// Of a run of `next`, wherever it was made: one on a device that was lost is another device's. The record of the first
  /// device once all are there; where they disagree it has become a failure, that names the devices and the first output
  /// that differs, and says whether the first device repeats its own.
  [[nodiscard]] std::optional<Record> take(std::size_t index, const Record& record);

  /// Cases that every device ran and that were judged on each: what was held against each other.
  [[nodiscard]] std::int64_t compared() const { return compared_; }

  /// What still waits, by index, when a run ends before its cases do: skipped, for want of the other devices' runs.
  [[nodiscard]] std::vector<std::pair<std::size_t, Record>> rest();

 private:
  struct Open {
    Record first;
    std::vector<Record> others = {};
    std::size_t runs_left = 0;
    bool repeating = false;  ///< the first device runs it again, for another disagreed
  };
  [[nodiscard]] std::string name_of_device(const std::string& id) const;
  [[nodiscard]] static const Record* disagreeing(const Open& open);
  [[nodiscard]] Record failure(const Open& open, const Record& again) const;

  const Devices* devices_;
  std::deque<Run> runs_;
  std::map<std::size_t, Open> open_;
  std::int64_t compared_ = 0;
};

}  // namespace samestate

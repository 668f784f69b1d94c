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

/// Runs the same case on every device of a host; the outputs must agree bit for bit. Pass a case with its
/// record from the first device to begin(); next() then yields the runs still needed on other devices, and
/// take() returns the final record once the last one has arrived.
class EachDevice {
 public:
  explicit EachDevice(const Devices& devices) : devices_(&devices) {}

  /// A case, and the device on which to run it, by HostDevice::id.
  struct Run {
    std::size_t index;
    std::string device;
  };

  /// Returns true if the case now waits for other devices: it was judged and wrote something on one of
  /// several devices, and its record is not yet a failure.
  bool begin(std::size_t index, const Record& record);
  /// The next run, in the order in which cases were added.
  [[nodiscard]] std::optional<Run> next();
  [[nodiscard]] bool waits(std::size_t index) const { return open_.contains(index); }

  /// Takes the result of a run from `next`, wherever it was made: a run on a device that was lost counts for
  /// another one. Returns the record of the first device once all results are there. If they disagree, it has
  /// become a failure that names the devices and the first output that differs, and says if the first device
  /// repeats its own result.
  [[nodiscard]] std::optional<Record> take(std::size_t index, const Record& record);

  /// The number of cases that ran and were judged on every device.
  [[nodiscard]] std::int64_t compared() const { return compared_; }

  /// The cases that still wait, by index, if a run ends early: they are skipped, because the other devices'
  /// runs are missing.
  [[nodiscard]] std::vector<std::pair<std::size_t, Record>> rest();

 private:
  struct Open {
    Record first;
    std::vector<Record> others = {};
    std::size_t runs_left = 0;
    bool repeating = false;  ///< the first device runs it again, because another one disagreed
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

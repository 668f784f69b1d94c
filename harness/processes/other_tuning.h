#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "harness/records/case_result.h"
#include "harness/records/record.h"

namespace samestate {

/// The tuner setting with which to repeat a failure: full after first and cached, first after full. Empty if
/// nothing was tuned, or the call was refused before anything ran.
[[nodiscard]] std::string other_tuning_of(const Record& record);

/// Enters the result of the repeat with that setting in the record of a failure: Record::retuned, and a
/// sentence after the reason that names both configurations (kWithOtherTuning). Returns false and leaves the
/// record unchanged if the repeat did not use that setting: the subject is a process that was not started
/// here and keeps its own.
bool add_retuned(Record& record, const std::string& setting, const CaseResult& repeat);

/// The part of that sentence that blames one configuration; empty if the failure also occurred with the other
/// one, or was not repeated.
[[nodiscard]] std::string configuration_to_blame(const Record& record);

/// Failures of a campaign that wait for a repeat with the other tuner setting, in a process of its own. A
/// crash that does not occur in the repeat is repeated with its own setting too, since it may be
/// intermittent.
class OtherTuning {
 public:
  /// Returns true if the failure now waits. `time_left` says if there is time left for repeats; without it
  /// only the first failure of each kernel is repeated.
  bool begin(std::size_t index, const Record& record, bool time_left);
  [[nodiscard]] bool waits(std::size_t index) const { return open_.contains(index); }
  [[nodiscard]] bool none() const { return open_.empty(); }

  [[nodiscard]] const Record& record(std::size_t index) const { return open_.at(index).record; }
  /// The setting of the run that the failure is waiting for.
  [[nodiscard]] std::string setting(std::size_t index) const;

  /// Takes the result of a run. Returns the finished record, or nullopt if another run is needed.
  [[nodiscard]] std::optional<Record> take(std::size_t index, const CaseResult& result);
  /// Returns the record as it was when the failure occurred, and stops waiting for it.
  [[nodiscard]] Record give_up(std::size_t index);

 private:
  struct Open {
    Record record;
    std::string setting;
    std::optional<CaseResult> other =
        {};  ///< the result of the first run, while a crash is repeated with its own setting
  };
  std::map<std::size_t, Open> open_;
  std::set<std::string> begun_, fixed_;  ///< kernels; the setting of those in `fixed_` cannot be changed
};

}  // namespace samestate

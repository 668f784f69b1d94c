#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "harness/records/case_result.h"
#include "harness/records/record.h"

namespace samestate {

/// The setting with which a failure is repeated whose tuners chose a configuration under the other: full after first and
/// cached, first after full. Empty where it was tuned by nothing, or refused before anything ran.
[[nodiscard]] std::string other_tuning_of(const Record& record);

/// Enters in the record of a failure what its repeat with that setting gave: Record::retuned, and a sentence behind the
/// reason that names both configurations (kWithOtherTuning). Returns false, with the record unchanged, where the repeat was not
/// tuned so: the subject is a process of somebody else's, which keeps its setting.
bool add_retuned(Record& record, const std::string& setting, const CaseResult& repeat);

/// The part of that sentence that says that one configuration is to blame; empty where the failure came with the other one too,
/// or was not repeated.
[[nodiscard]] std::string configuration_to_blame(const Record& record);

/// Failures of a campaign that wait for a repeat with the other setting of their tuners, in a process of its own. A crash
/// that the repeat does not show is repeated with its own setting too, since it may come and go.
class OtherTuning {
 public:
  /// Returns true if the failure waits from now on. `time_left`: whether the time for repeats is left; without it the first
  /// failure of each kernel still is repeated.
  bool begin(std::size_t index, const Record& record, bool time_left);
  [[nodiscard]] bool waits(std::size_t index) const { return open_.contains(index); }
  [[nodiscard]] bool none() const { return open_.empty(); }

  [[nodiscard]] const Record& record(std::size_t index) const { return open_.at(index).record; }
  /// The setting of the run that the failure waits for.
  [[nodiscard]] std::string setting(std::size_t index) const;

  /// Takes the result of a run. Returns the finished record; none where another run is to be made.
  [[nodiscard]] std::optional<Record> take(std::size_t index, const CaseResult& result);
  /// Returns the record as it was when the failure came, which waits no longer.
  [[nodiscard]] Record give_up(std::size_t index);

 private:
  struct Open {
    Record record;
    std::string setting;
    std::optional<CaseResult> other =
        {};  ///< the first run's, while a crash is repeated with its own setting
  };
  std::map<std::size_t, Open> open_;
  std::set<std::string> begun_, fixed_;  ///< kernels; of `fixed_` the setting cannot be changed
};

}  // namespace samestate

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/cases/case_line.h"
#include "harness/records/record.h"

namespace samestate {

/// Calls of one kernel that it refused alike: it threw the same before it launched anything.
struct Refusals {
  std::string kernel;
  std::string reason;                ///< of the first
  std::vector<std::size_t> records;  ///< places among the records
  std::vector<std::string>
      limits;  ///< conditions on keys of the case line that all taken cases meet, and none of these all
  bool declared = false;  ///< a limit that the kernel declares names one of those keys already
};

/// Conditions that every one of `taken` meets and each of `refused` breaks one of, as few as are found, as a declaration has them
/// ("dk = 128", "T % 16 = 0", "Hk <= 32"); empty where sizes and settings do not tell them apart, or nothing was taken.
[[nodiscard]] std::vector<std::string> separating_limits(std::span<const Case> refused,
                                                         std::span<const Case> taken);

/// Returns true if the declared limits, as one text, name the key of the condition: a refusal of such a size is a failure.
[[nodiscard]] bool names_key(const std::string& declared, const std::string& limit);

/// Returns the crashes whose gate is kRefusal that came kAlike times or more, alike but for numbers. `limits_of`: what a kernel
/// declares, as one text.
inline constexpr std::size_t kAlike = 3;
[[nodiscard]] std::vector<Refusals> find_refusals(
    std::span<const Record> records, const std::function<std::string(const std::string& kernel)>& limits_of);

/// Makes unsupported cases, gate kRefused, of those that limits explain which the kernel does not declare. A sentence a group, with
/// the limits to be declared.
[[nodiscard]] std::vector<std::string> count_as_refused(std::vector<Record>& records,
                                                        std::span<const Refusals> refusals);

}  // namespace samestate

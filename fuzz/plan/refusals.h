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

/// Calls of one kernel that it refused for the same reason: it threw the same before it launched anything.
struct Refusals {
  std::string kernel;
  std::string reason;                ///< the reason of the first
  std::vector<std::size_t> records;  ///< indices among the records
  std::vector<std::string>
      limits;  ///< conditions on keys of the case line that all accepted cases fulfil, and that none of these
               ///< fulfils completely
  bool declared = false;  ///< a limit that the kernel declares already names one of those keys
};

/// Conditions, in the format of a declaration ("dk = 128", "T % 16 = 0", "Hk <= 32"), that every case in
/// `taken` fulfils and each in `refused` violates at least one of, as few as can be found; empty if sizes and
/// settings do not distinguish them, or nothing was accepted.
[[nodiscard]] std::vector<std::string> separating_limits(std::span<const Case> refused,
                                                         std::span<const Case> taken);

/// True if the declared limits, as one text, name the key of the condition: refusing such a size is then a
/// failure.
[[nodiscard]] bool names_key(const std::string& declared, const std::string& limit);

/// Groups the crashes with gate kRefusal that occurred kAlike times or more and are equal apart from numbers.
/// `limits_of` returns what a kernel declares, as one text.
inline constexpr std::size_t kAlike = 3;
[[nodiscard]] std::vector<Refusals> find_refusals(
    std::span<const Record> records, const std::function<std::string(const std::string& kernel)>& limits_of);

/// Turns the cases in groups that are explained by limits which the kernel does not declare into unsupported
/// ones, with gate kRefused. Returns one sentence per group, with the limits that should be declared.
[[nodiscard]] std::vector<std::string> count_as_refused(std::vector<Record>& records,
                                                        std::span<const Refusals> refusals);

}  // namespace samestate

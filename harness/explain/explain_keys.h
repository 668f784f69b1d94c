#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/explain/reruns.h"
#include "harness/run/kernel_table.h"

namespace samestate {

/// The values of one size of a case, and for each whether the case fails with it.
using FailsWith = std::map<std::int64_t, bool>;

/// Returns the rule that separates the values that fail from those that pass, in words: "only where T is no
/// multiple of 16 (chunk)", "only K = 1", "only where D is no power of two", "only from B = 2 on". `failing`
/// is the value in the failing case, and `units` are sizes of which it may be a multiple, with their names.
/// If no rule separates the values, or fewer than three values are on a side of it although there are more,
/// they are listed themselves: "depends on T: passes with .., fails with ..". The text is empty if no value
/// passes.
[[nodiscard]] std::string rule_of(std::string_view key, std::int64_t failing, const FailsWith& fails,
                                  const std::vector<std::pair<std::int64_t, std::string>>& units);

/// The findings about a failing case whose keys are changed one at a time, the most telling rules first.
struct KeyRules {
  /// Rules about sizes, about the regime, and about keys that plans leave at their defaults, each with the
  /// values that were tried.
  std::vector<std::string> rules;
  /// Rules that say less than what the values look like, because they are true of many faults of the equation
  /// too: only calls with several tokens, sequences or heads fail; or other seeds, the other forms, contracts
  /// and runs without the law pass.
  std::vector<std::string> weak;
};

/// Runs the failing case with one key changed at a time (T, sequences, chunk, prefill, heads, widths, sizes
/// of the system, regime, form, law, contract, seed) and returns which values make it pass. Each key gets an
/// equal part of the time that `reruns` leaves. The kernel runs in this process.
[[nodiscard]] KeyRules keys_that_matter(const Case& failing, const KernelTable& table, Reruns& reruns);

}  // namespace samestate

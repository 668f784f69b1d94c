#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/explain/reruns.h"
#include "harness/run/kernel_table.h"

namespace samestate {

/// Values of one size of a case, each with whether the case fails with it.
using FailsWith = std::map<std::int64_t, bool>;

/// The rule that separates the values that fail from those that pass, in words: "only where T is no multiple of 16 (chunk)",
/// "only K = 1", "only where D is no power of two", "only from B = 2 on". `failing` is the value of the failure itself and
/// `units` are sizes that it may be a multiple of, with their names. Where no rule separates them, the values themselves;
/// empty where no value passes.
[[nodiscard]] std::string rule_of(std::string_view key, std::int64_t failing, const FailsWith& fails,
                                  const std::vector<std::pair<std::int64_t, std::string>>& units);

/// What changing one key of a failing case shows, the most telling first.
struct KeyRules {
  /// Of sizes, of the regime, and of keys that plans leave at their defaults, each with the values that were tried.
  std::vector<std::string> rules;
  /// That only calls of several tokens, sequences or heads fail, that other seeds or the other forms, contracts and runs
  /// without the law pass: true of many faults of the equation as well, so that it says less than what the values look like.
  std::vector<std::string> weak;
};

/// Runs the failing case with one key changed at a time (T, sequences, chunk, prefill, heads, widths, sizes of the system,
/// regime, form, law, contract, seed) and says which values make it pass. Each key has an equal part of the time that
/// `reruns` leaves; the kernel runs in this process.
[[nodiscard]] KeyRules keys_that_matter(const Case& failing, const KernelTable& table, Reruns& reruns);

}  // namespace samestate

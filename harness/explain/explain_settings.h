#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/explain/reruns.h"
#include "harness/run/kernel_table.h"

namespace samestate {

/// How the explanation begins for a kernel whose runs of one line are not all alike.
inline constexpr std::string_view kNotDeterministic = "not deterministic";

/// How the explanation begins for a kernel that fails or passes depending on how often it was called, or on
/// what was called before.
inline constexpr std::string_view kByCount = "depends on earlier calls in the process";

/// One thing that turns a failure on.
struct SettingRule {
  std::string text;                 ///< "only with final=in_place: passes with final=apart"
  std::optional<Case> passes = {};  ///< the case without the setting
};

/// Returns the settings of a failing case (Key::setting: where tensors lie, what becomes of the final state,
/// which map of heads, ..) without which, one at a time, it passes; also the number of threads, which its
/// seed chooses. The case is run several times, and so is each case that passes without a setting that is not
/// at its default. If the failure does not occur in every run, only that is reported: the rule in the order
/// of runs if there is one (kByCount: "fails in every third run"), else kNotDeterministic. If it does occur
/// in every run and outputs differ in their bits, that is reported after the settings. Kernels run in this
/// process, as often as `reruns` allows.
[[nodiscard]] std::vector<SettingRule> settings_that_matter(const Case& failing, const KernelTable& table,
                                                            Reruns& reruns);

}  // namespace samestate

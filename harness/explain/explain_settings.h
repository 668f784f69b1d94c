#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/explain/reruns.h"
#include "harness/run/kernel_table.h"

namespace samestate {

/// What is said first of a kernel whose runs of one line are not all alike.
inline constexpr std::string_view kNotDeterministic = "not deterministic";

/// What is said first of one that fails or passes by how often it was called, or by what was called before.
inline constexpr std::string_view kByCount = "depends on earlier calls in the process";

/// One thing that turns a failure on.
struct SettingRule {
  std::string text;                 ///< "only with final=in_place: passes with final=apart"
  std::optional<Case> passes = {};  ///< the case without the setting
};

/// The settings of a failing case (Key::setting: where tensors lie, what becomes of the final state, which map of heads,
/// ..) without which, one at a time, it passes; also the number of threads that its seed chooses. The case is run several
/// times, and so is each that passes without a setting that is not at its default. Where the failure does not come in
/// every run, that is said alone and no setting: the rule of the runs that fail where there is one (kByCount: "fails in
/// every third run"), else kNotDeterministic. Where it does and outputs differ in their bits, that is said behind the
/// settings. Kernels run in this process, as often as `reruns` allows.
[[nodiscard]] std::vector<SettingRule> settings_that_matter(const Case& failing, const KernelTable& table,
                                                            Reruns& reruns);

}  // namespace samestate

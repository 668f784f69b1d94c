#include "oracles/proofs/goldens/goldens.h"

#include <algorithm>

#include "fixtures/golden_set.h"
#include "oracles/proofs/goldens/groups.h"

namespace samestate {
namespace {

using Check = void (*)(const GoldenSource&);

/// One row per group name; a name that ends in '*' stands for all names with that prefix.
struct Row {
  std::string_view group;
  Check check;
};

constexpr Row kRows[] = {
    {"gdn_layer", check_gated_delta_net_golden},
    {"gdn_*", check_recurrent_family_golden},
    {"delta_rule", check_recurrent_family_golden},
    {"linear_attention", check_recurrent_family_golden},
    {"scalar_gated", check_recurrent_family_golden},
    {"retention", check_recurrent_family_golden},
    {"gated_rmsnorm", check_norm_golden},
    {"zero_centered_rmsnorm", check_norm_golden},
    {"gated_attention", check_gated_attention_golden},
    {"mla", check_latent_attention_golden},
    {"moe_block", check_mixture_of_experts_golden},
    {"mamba_mixer", check_mamba_golden},
    {"mamba2_mixer", check_mamba2_golden},
};

/// Null if no system of this build made the group.
Check check_of(std::string_view group) {
  for (const Row& row : kRows) {
    const bool any = row.group.ends_with('*');
    if (any ? group.starts_with(row.group.substr(0, row.group.size() - 1)) : group == row.group)
      return row.check;
  }
  return nullptr;
}

}  // namespace

bool GoldenReport::passed() const {
  return !checks.empty() &&
         std::all_of(checks.begin(), checks.end(), [](const GoldenCheck& c) { return c.passed; });
}

GoldenReport check_goldens(const std::filesystem::path& folder) {
  GoldenReport report;
  for (const GoldenFile& golden : read_golden_set(folder).files) {
    const Safetensors file = read_safetensors(golden.path);
    const std::string name = golden.path.filename().string();
    for (const GoldenGroup& group : golden.groups) {
      if (const Check check = check_of(group.name)) {
        check({file, name, group.name, report});
      } else {
        report.unknown.push_back(name + ": " + group.name);
      }
    }
  }
  return report;
}

}  // namespace samestate

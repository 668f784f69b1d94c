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
    {"gdn_layer", gated_delta_net_golden::check},
    {"gdn_*", recurrent_family_golden::check},
    {"delta_rule", recurrent_family_golden::check},
    {"linear_attention", recurrent_family_golden::check},
    {"scalar_gated", recurrent_family_golden::check},
    {"retention", recurrent_family_golden::check},
    {"gated_rmsnorm", norm_golden::check},
    {"zero_centered_rmsnorm", norm_golden::check},
    {"gated_attention", gated_attention_golden::check},
    {"mla", latent_attention_golden::check},
    {"moe_block", mixture_of_experts_golden::check},
    {"mamba_mixer", mamba_golden::check},
    {"mamba2_mixer", mamba2_golden::check},
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

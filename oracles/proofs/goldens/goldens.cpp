#include "oracles/proofs/goldens/goldens.h"

#include <algorithm>

#include "fixtures/golden_set.h"
#include "oracles/proofs/goldens/groups.h"
#include "reference/error.h"

namespace samestate {
namespace {

using Check = void (*)(const GoldenSource&);

/// One row per group name; a name that ends in '*' stands for all names with that prefix.
struct Row {
  std::string_view group;
  Check check;
  Check backward;
};

constexpr Row kRows[] = {
    {"gdn_layer", gated_delta_net_golden::check, gated_delta_net_golden::check_backward},
    {"gdn_*", recurrent_family_golden::check, recurrent_family_golden::check_backward},
    {"delta_rule", recurrent_family_golden::check, recurrent_family_golden::check_backward},
    {"linear_attention", recurrent_family_golden::check, recurrent_family_golden::check_backward},
    {"scalar_gated", recurrent_family_golden::check, recurrent_family_golden::check_backward},
    {"retention", recurrent_family_golden::check, recurrent_family_golden::check_backward},
    {"gated_rmsnorm", norm_golden::check, norm_golden::check_backward},
    {"zero_centered_rmsnorm", norm_golden::check, norm_golden::check_backward},
    {"gated_attention", gated_attention_golden::check, gated_attention_golden::check_backward},
    {"mla", latent_attention_golden::check, latent_attention_golden::check_backward},
    {"moe_block", mixture_of_experts_golden::check, mixture_of_experts_golden::check_backward},
    {"mamba_mixer", mamba_golden::check, mamba_golden::check_backward},
    {"mamba2_mixer", mamba2_golden::check, mamba2_golden::check_backward},
};

/// The end of the name of a group of gradients.
constexpr std::string_view kBackward = ".backward";

/// Null if no system of this build made the group.
const Row* row_of(std::string_view group) {
  for (const Row& row : kRows) {
    const bool any = row.group.ends_with('*');
    if (any ? group.starts_with(row.group.substr(0, row.group.size() - 1)) : group == row.group) return &row;
  }
  return nullptr;
}

bool is_in(const GoldenFile& file, std::string_view group) {
  return std::ranges::find(file.groups, group, &GoldenGroup::name) != file.groups.end();
}

/// Checks the gradients of a group, whose inputs are in another file of the set or in its own.
void check_gradients(GoldenSource source, const GoldenSet& set, Check check) {
  source.forward_group = source.group.substr(0, source.group.size() - kBackward.size());
  const auto of = std::ranges::find_if(
      set.files, [&](const GoldenFile& file) { return is_in(file, source.forward_group); });
  if (of == set.files.end())
    throw Error(source.file_name + ": group " + source.group + " has gradients for the inputs of group " +
                source.forward_group + ", which is in no file of the folder");
  const Safetensors forward = read_safetensors(of->path);
  source.forward_file = &forward;
  check(source);
}

}  // namespace

bool GoldenReport::passed() const {
  return !checks.empty() &&
         std::all_of(checks.begin(), checks.end(), [](const GoldenCheck& c) { return c.passed; });
}

GoldenReport check_goldens(const std::filesystem::path& folder) {
  GoldenReport report;
  const GoldenSet set = read_golden_set(folder);
  for (const GoldenFile& golden : set.files) {
    const Safetensors file = read_safetensors(golden.path);
    const std::string name = golden.path.filename().string();
    for (const GoldenGroup& group : golden.groups) {
      const bool gradients = group.name.ends_with(kBackward);
      const std::string_view forward =
          std::string_view(group.name).substr(0, group.name.size() - (gradients ? kBackward.size() : 0));
      const Row* const row = row_of(forward);
      const GoldenSource source{file, name, group.name, report};
      if (row == nullptr) {
        report.unknown.push_back(name + ": " + group.name);
      } else if (gradients) {
        check_gradients(source, set, row->backward);
      } else {
        row->check(source);
      }
    }
  }
  return report;
}

}  // namespace samestate

#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace samestate {

/// The comparison of the reference with one tensor that public code computed.
struct GoldenCheck {
  std::string file, group, tensor;
  std::string form;             ///< the form of the reference that was compared
  double relative_error = 0.0;  ///< largest |difference| over largest |golden|
  double limit = 0.0;
  bool passed = false;
};

/// The results of checking a folder of goldens.
struct GoldenReport {
  std::vector<GoldenCheck> checks;
  std::vector<std::string> unknown;   ///< "file: group" for each group that no system of this build computes
  [[nodiscard]] bool passed() const;  ///< true if there was at least one check and none failed
};

/// Relative error up to which float64 evaluations of one equation by two codes agree.
inline constexpr double kGoldenLimit = 1e-12;

/// Checks every known group of every file in `folder`: gdn_* and gdn_layer, delta_rule, retention,
/// scalar_gated, linear_attention, gated_rmsnorm, zero_centered_rmsnorm, gated_attention, mla, moe_block,
/// mamba_mixer, mamba2_mixer; and NAME.backward of each, the gradients by its inputs and weights. Throws Error
/// for a folder or file that cannot be read, or a known group whose tensors are missing or have the wrong shape.
[[nodiscard]] GoldenReport check_goldens(const std::filesystem::path& folder);

}  // namespace samestate

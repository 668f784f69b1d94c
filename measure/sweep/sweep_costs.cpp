#include "measure/sweep/sweep_costs.h"

#include <limits>
#include <optional>

#include "reference/costs/recurrence.h"
#include "reference/costs/selective_scan.h"
#include "reference/costs/state_space_duality.h"

namespace samestate {
namespace {

using costs::Count;

Count size(const Case& c, std::string_view name) { return c.parameters.find(name)->second; }

/// Systems that are one recurrence a head.
std::optional<costs::RecurrenceConfig> recurrence_of(const Case& c) {
  if (c.system == "gated_delta_rule") return costs::gated_delta_rule(c.dk, c.dv);
  if (c.system == "delta_rule") return costs::delta_rule(c.dk, c.dv);
  if (c.system == "retention") return costs::retention(c.dk, c.dv, 1);
  if (c.system == "linear_attention") return costs::linear_attention(c.dk, c.dv);
  if (c.parameters.empty()) return {};
  if (c.system == "gated_delta_net") return costs::gated_delta_rule(size(c, "dk"), size(c, "dv"));
  if (c.system == "linear_attention_normalised")
    return costs::linear_attention(size(c, "dk"), size(c, "dv"), true);
  if (c.system == "normalised_retention" || c.system == "multi_scale_retention")
    return costs::retention(size(c, "dk"), size(c, "dv"), 0);
  return {};
}

/// Exact counts of a chunk and of a token, of `heads` heads.
TokenCost share(Count flops_of_chunk, Count state_bytes_of_chunk, Count token_bytes, Count chunk,
                Count heads) {
  const auto parts = static_cast<double>(costs::product({chunk, heads}));
  return {static_cast<double>(flops_of_chunk) / parts,
          static_cast<double>(state_bytes_of_chunk) / parts +
              static_cast<double>(token_bytes) / static_cast<double>(heads)};
}

}  // namespace

TokenCost token_cost(const Case& c) {
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  if (c.form != "chunked") return {none, none};
  if (const auto config = recurrence_of(c)) {
    return {costs::chunked_flops_per_token(*config, c.chunk),
            costs::chunked_bytes_per_token(*config, c.chunk)};
  }
  if (c.system == "state_space_duality" || c.system == "mamba2_mixer") {
    const costs::StateSpaceConfig config{size(c, "H"), size(c, "G"), size(c, "P"), size(c, "N")};
    return share(costs::duality_chunk_flops(config, c.chunk).total(), costs::duality_state_bytes(config),
                 costs::duality_token_bytes(config), c.chunk, config.heads);
  }
  if (c.system == "selective_scan" || c.system == "mamba_mixer") {
    const costs::ScanConfig config{size(c, c.system == "mamba_mixer" ? "Di" : "D"), size(c, "N")};
    return share(costs::scan_chunk_flops(config, c.chunk), costs::scan_state_bytes(config),
                 costs::scan_token_bytes(config), c.chunk, config.channels);
  }
  return {none, none};
}

}  // namespace samestate

#include "fuzz/plan/never_judged.h"

#include <algorithm>
#include <array>

#include "harness/cases/form_words.h"
#include "harness/cases/keys.h"

namespace samestate {

std::span<const NeverJudged> never_judged() {
  static constexpr std::array rows{
      NeverJudged{"", [](const Case& c) { return c.T == 0; }, "T=0",
                  "without tokens and without a state there is no output"},
      NeverJudged{
          "dendritic_attention gated_delta_net linear_attention_normalised multi_scale_retention "
          "normalised_retention normalised_retention_recurrence",
          [](const Case& c) { return c.T == 0 && c.regime != "trained" && c.regime != "long_context"; },
          "T=0", "the state begins as zeros, and without tokens it stays so"},
      NeverJudged{"normalised_retention", [](const Case& c) { return c.law.empty() && c.regime == "zeros"; },
                  "T=9 regime=zeros",
                  "the norm of a head that is zero has no bound, and leaves the others' none"},
      NeverJudged{"short_convolution", [](const Case& c) { return c.law == "reset" && size_in(c, "W") == 1; },
                  "B=2 T=13 W=1 law=reset", "of one tap there is no history to forget"},
      NeverJudged{"gated_delta_step", [](const Case& c) { return c.law == "pool" && size_in(c, "P") == 1; },
                  "B=2 T=13 P=1 law=pool", "of one slot there is no row that the request does not own"},
      // Where a bias, a gate or an earlier stage gives a zero token a value, it is judged.
      NeverJudged{"dendritic_attention gate_first_rms_norm gated_attention gated_delta_net "
                  "gated_delta_net_output gated_rms_norm gradient_step l2norm latent_attention latent_cache "
                  "linear_attention_bidirectional mixture_of_experts overlap_windows proximal_step "
                  "qwen3_next_moe residual_rms_norm rms_norm rotary_embedding softmax_attention "
                  "zero_centred_rms_norm",
                  [](const Case& c) { return c.T == 1 && c.regime == "zeros"; }, "T=1 regime=zeros",
                  "the only token is zero, and all that is made of it"},
  };
  return rows;
}

const NeverJudged* never_judged(const System& system, const Case& c) {
  for (const NeverJudged& row : never_judged()) {
    // A row may refer only to keys that its systems have.
    if (!row.systems.empty() && !lists(row.systems, system.name)) continue;
    if (row.holds(c) && (!row.systems.empty() || !system.carries_state(c))) return &row;
  }
  return nullptr;
}

}  // namespace samestate

#pragma once

#include "reference/costs/counts.h"
#include "reference/costs/recurrence.h"

/// Costs of one DendAttn layer (EQUATIONS 7). The defaults are document 003's configuration (DEND-1).
namespace samestate::costs {

struct DendriticConfig {
  Count batch = 2;
  Count length = 1024;
  Count hidden = 2048;
  Count heads = 8;
  Count head_width = 256;
  Count value_factor = 2;  ///< dv = value_factor head_width
  Count branches = 8;      ///< E
  Count shared = 1;        ///< Es
  Count routed = 2;        ///< K
  Count windows = 2;       ///< N
  Count overlap = 64;      ///< O
  Count convolution_width = 4;
  bool convolution_bias = false;  ///< COST-18 counts one; upstream code has no bias (A-13)
  bool gate_per_head = false;     ///< COST-16 counts one per head; upstream code shares one (A-08)
};

/// Widths that follow from the configuration.
struct DendriticShape {
  Count value_width = 0;      ///< dv
  Count key_channels = 0;     ///< H d
  Count value_channels = 0;   ///< H dv
  Count gates = 0;            ///< E H merged heads, each with one beta and one g
  Count window_width = 0;     ///< w = (d - O) / N + O
  Count window_step = 0;      ///< s = w - O
  Count virtual_heads = 0;    ///< N E H
  Count routed_branches = 0;  ///< E - Es, the branches that the router scores
};

/// Throws Error if a count is below 1, N does not divide d - O, O >= d (7.5), or E < Es + K.
[[nodiscard]] inline DendriticShape shape(const DendriticConfig& c) {
  for (const auto& [value, name] : {std::pair{c.batch, "batch"},
                                    {c.length, "length"},
                                    {c.hidden, "hidden"},
                                    {c.heads, "heads"},
                                    {c.head_width, "head_width"},
                                    {c.value_factor, "value_factor"},
                                    {c.branches, "branches"},
                                    {c.windows, "windows"},
                                    {c.convolution_width, "convolution_width"}}) {
    require_at_least(value, 1, name);
  }
  require_at_least(c.overlap, 0, "overlap");
  require_at_least(c.head_width - 1, c.overlap, "head_width - 1, the largest overlap,");
  require_at_least(c.branches, sum({c.shared, c.routed}), "branches (shared + routed)");
  DendriticShape s;
  s.value_width = product({c.head_width, c.value_factor});
  s.key_channels = product({c.heads, c.head_width});
  s.value_channels = product({c.heads, s.value_width});
  s.gates = product({c.branches, c.heads});
  s.window_step = quotient(c.head_width - c.overlap, c.windows, "windows: head_width - overlap");
  s.window_width = s.window_step + c.overlap;
  s.virtual_heads = product({c.windows, s.gates});
  s.routed_branches = c.branches - c.shared;
  return s;
}

/// Parameters in the groups that the document uses (COST-14..19).
struct DendriticParameters {
  Count projections = 0;   ///< W_q, W_k, W_v
  Count expansions = 0;    ///< Q_h, K_h of every head
  Count router = 0;        ///< R
  Count gates = 0;         ///< W_a, W_b, A_log, dt_bias
  Count convolutions = 0;  ///< cq, ck, cv
  Count output = 0;        ///< W_g, W_o, the weight of o_norm

  [[nodiscard]] Count total() const {
    return sum({projections, expansions, router, gates, convolutions, output});
  }
};

[[nodiscard]] inline DendriticParameters parameters(const DendriticConfig& c) {
  const DendriticShape s = shape(c);
  const Count channels = sum({product({2, s.key_channels}), s.value_channels});
  DendriticParameters p;
  p.projections = linear_parameters(c.hidden, channels);
  p.expansions = product({2, c.heads, linear_parameters(c.head_width, product({c.branches, c.head_width}))});
  p.router = product({linear_parameters(c.head_width, s.routed_branches), c.gate_per_head ? c.heads : 1});
  p.gates = sum({product({2, linear_parameters(c.hidden, s.gates)}), product({2, s.gates})});
  p.convolutions = product({channels, sum({c.convolution_width, c.convolution_bias ? 1 : 0})});
  p.output = sum({product({2, linear_parameters(c.hidden, s.value_channels)}), s.value_width});
  return p;
}

/// Elements of the recurrent state of all virtual heads, [B, N E H, w, dv] (COST-12).
[[nodiscard]] inline Count state_elements(const DendriticConfig& c) {
  const DendriticShape s = shape(c);
  return product({c.batch, s.virtual_heads, s.window_width, s.value_width});
}

/// Elements of the convolution caches with `kept` inputs per channel. q and k are cached per branch; v is
/// cached per branch, as upstream does, or once (7.4). With W inputs kept it is 524,288 (P-26).
[[nodiscard]] inline Count convolution_cache_elements(const DendriticConfig& c, Count kept,
                                                      bool one_value_copy = false) {
  const DendriticShape s = shape(c);
  const Count keys = product({2, c.branches, s.key_channels});
  const Count values = product({one_value_copy ? 1 : c.branches, s.value_channels});
  return product({c.batch, kept, sum({keys, values})});
}

/// Elements that an attention layer of this width would cache per token of each sequence: K and V (COST-29).
[[nodiscard]] inline Count transformer_cache_per_token(const DendriticConfig& c) {
  return product({c.batch, 2, c.hidden});
}

/// Operations per token (COST-23). A multiply-add counts as 2; norms, gates and softmax are left out.
struct DendriticFlops {
  Count projections = 0;   ///< every linear map: the router once per head, the rest dense over the branches
  Count convolutions = 0;  ///< 2 W per channel and branch, including v, as the document merges it (DEND-16)
  Count recurrence = 0;    ///< 7 w dv per virtual head

  [[nodiscard]] Count total() const { return sum({projections, convolutions, recurrence}); }
};

[[nodiscard]] inline DendriticFlops flops_per_token(const DendriticConfig& c) {
  const DendriticShape s = shape(c);
  const DendriticParameters p = parameters(c);
  const Count router = product({c.heads, linear_parameters(c.head_width, s.routed_branches)});
  const Count decays = product({2, s.gates});  // A_log and dt_bias are not linear maps
  DendriticFlops f;
  f.projections =
      product({2, sum({p.projections, p.expansions, router, p.gates - decays, p.output - s.value_width})});
  f.convolutions =
      product({2, c.convolution_width, c.branches, sum({product({2, s.key_channels}), s.value_channels})});
  f.recurrence = product({s.virtual_heads, recurrent_flops_per_token({s.window_width, s.value_width})});
  return f;
}

/// Operations per token that would be saved by compacting away the tokens of inactive branches: the
/// recurrence of E - Es - K branches. A kernel that only masks them saves nothing (E-25).
[[nodiscard]] inline Count compaction_saving(const DendriticConfig& c) {
  const Count recurrence = flops_per_token(c).recurrence;
  return product({recurrence / c.branches, c.branches - c.shared - c.routed});
}

}  // namespace samestate::costs

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "optimized/cuda/delta/chunk_dense_table.h"
#include "optimized/cuda/delta/chunk_wgmma_dense/plan.h"
#include "optimized/cuda/delta/chunk_wgmma_dense/segments.cuh"
#include "optimized/cuda/delta/ranks/shares.h"

/// The host's half of the kernel of segments; needs no device.
namespace samestate::cuda {

/// Returns the rows that evaluate a call whose segments run at the same time on one device.
[[nodiscard]] inline std::span<const DispatchRow> segment_rows() {
  static const std::array<DispatchRow, 1> rows = [] {
    Limits limits;
    limits.dk = {1, kPrefillKeys};
    limits.rule = Limits::Rule::delta;
    return std::array<DispatchRow, 1>{
        {{"prefill, segments", "bf16_fused", keeps_prefill, limits,
          "few heads, many tokens: maps of all segments at once, composed in order, then outputs at once"}}};
  }();
  return rows;
}

/// The segments of a call (Arguments::cuts; those without tokens are left out), in the order of their tokens, and how their
/// maps are composed.
struct SegmentPlan {
  std::vector<std::int64_t> offsets;            ///< [segments + 1]: rows of the call's tensors
  std::vector<int> numbers, places, sequences;  ///< as in SegmentCall
  std::vector<ranks::Chain> chains;             ///< one for each sequence
  std::vector<std::int64_t> order;              ///< numbers of the chains

  [[nodiscard]] std::int64_t segments() const { return std::ssize(numbers); }
  [[nodiscard]] std::int64_t passing() const { return std::ssize(places); }
};

/// Throws Error unless the cuts ascend from 0 to T.
[[nodiscard]] inline SegmentPlan plan_segments(const Arguments& a, const calls::Sizes& sizes) {
  const ranks::Division division = ranks::divide(a, sizes, calls::checked_cuts(a, sizes), 1);
  const ranks::Share& share = division.shares.front();
  std::vector<int> by_tokens(share.parts.size());
  std::iota(by_tokens.begin(), by_tokens.end(), 0);
  const auto part = [&](int number) -> const ranks::Held& {
    return share.parts[static_cast<std::size_t>(number)];
  };
  std::sort(by_tokens.begin(), by_tokens.end(), [&](int x, int y) {
    const calls::Part &a_part = part(x).part, &b_part = part(y).part;
    return a_part.sequence != b_part.sequence ? a_part.sequence < b_part.sequence
                                              : a_part.begin < b_part.begin;
  });
  SegmentPlan plan;
  plan.numbers = by_tokens;
  plan.places.resize(static_cast<std::size_t>(share.passing));
  for (std::size_t i = 0; i < by_tokens.size(); ++i) {
    const ranks::Held& held = part(by_tokens[i]);
    plan.offsets.push_back(held.row);
    plan.sequences.push_back(static_cast<int>(held.part.sequence));
    if (by_tokens[i] < share.passing)
      plan.places[static_cast<std::size_t>(by_tokens[i])] = static_cast<int>(i);
  }
  const calls::Part* const last = by_tokens.empty() ? nullptr : &part(by_tokens.back()).part;
  plan.offsets.push_back(last ? plan.offsets.back() + last->end - last->begin : 0);
  plan.chains = share.chains;
  plan.order = share.order;
  return plan;
}

/// The floats of the workspace, in addition to what the helpers publish.
struct SegmentMemory {
  std::size_t M = 0, N = 0, reached = 0, incoming = 0;
};
[[nodiscard]] inline SegmentMemory segment_memory(const SegmentPlan& plan, const Parameters<Bf16>& p,
                                                  std::int64_t sequences) {
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  const std::int64_t state = p.Hv * p.dk * p.dv;
  return {size(plan.passing() * p.Hv * p.dk * p.dk), size(plan.passing() * state),
          size(plan.segments() * state), size(sequences * state)};
}

/// The call without its memory, of the parameters of the whole; `offsets` is SegmentPlan::offsets where the kernel reads it.
[[nodiscard]] inline SegmentCall segment_call(const SegmentPlan& plan, const Parameters<Bf16>& whole,
                                              const std::int64_t* offsets) {
  Parameters<Bf16> p = whole;
  p.sequences = plan.segments();
  p.cu_seqlens = offsets;
  p.initial_state = nullptr, p.final_state = nullptr;
  SegmentCall x;
  x.prefill = plan_prefill(p, 1);
  x.prefill.group = static_cast<int>(std::max<std::int64_t>(x.prefill.items(), 1));
  x.passing = plan.passing();
  x.final_state = whole.final_state;
  return x;
}

/// Returns how the states that reach the segments are composed; the pointers are those of the kernel's
/// inputs.
[[nodiscard]] inline ranks::ComposeParameters composition(const SegmentCall& x, const ranks::Chain* chains,
                                                          const std::int64_t* order, std::int64_t sequences,
                                                          const float* incoming, float* reached) {
  ranks::ComposeParameters c;
  c.chains = chains, c.order = order;
  c.M = x.M, c.N = x.N;
  c.incoming = incoming, c.reached = reached;
  c.count = sequences, c.passing = x.passing;
  c.Hv = x.prefill.p.Hv, c.dk = x.prefill.p.dk, c.dv = x.prefill.p.dv;
  return c;
}

}  // namespace samestate::cuda

#pragma once

#include "oracles/systems/operator.h"
#include "reference/costs/recurrence.h"
#include "reference/costs/selective_scan.h"
#include "reference/costs/state_space_duality.h"

/// Helpers for the cost functions of operator rows. `Call::chunk` is 0 in a form without chunks.
namespace samestate::row_costs {

using costs::Count;

/// Per token: 2 operations for each element of a weight, including convolutions.
[[nodiscard]] inline Count linear_maps(const Signature& signature) {
  Count elements = 0;
  for (const TensorSpec& spec : signature.inputs) {
    if (spec.content == Content::weight) elements = costs::sum({elements, spec.size()});
  }
  return costs::product({2, elements});
}

/// Operations of all tokens: `of_chunk(C)` for each chunk, the last one with its actual length, or `of_token`
/// for each token.
template <class OfChunk>
[[nodiscard]] Count of_sequence(const Call& call, Count of_token, OfChunk&& of_chunk) {
  if (call.chunk == 0) return costs::product({call.tokens, of_token});
  const Count whole = costs::product({call.tokens / call.chunk, of_chunk(call.chunk)});
  const Count rest = call.tokens % call.chunk;
  return rest == 0 ? whole : costs::sum({whole, of_chunk(rest)});
}

/// `heads` heads of a matrix recurrence, plus `besides` operations per token.
[[nodiscard]] inline Cost recurrence(const Call& call, const costs::RecurrenceConfig& head, Count heads,
                                     Count besides = 0) {
  const auto of_chunk = [&](Count chunk) {
    return costs::product({heads, costs::chunk_flops(head, chunk).total()});
  };
  const Count inside =
      of_sequence(call, costs::product({heads, costs::recurrent_flops_per_token(head)}), of_chunk);
  Cost cost{costs::sum({inside, costs::product({call.tokens, besides})})};
  if (call.chunk == 0) return cost;
  cost.chunk = {heads, of_chunk(call.chunk),
                costs::product({2, heads, costs::state_elements(head), head.state_bytes}),
                costs::product({heads, costs::token_bytes(head)})};
  return cost;
}

/// All heads of a state space.
[[nodiscard]] inline Cost duality(const Call& call, Count besides = 0) {
  const costs::StateSpaceConfig all{call.at("H"), call.at("G"), call.at("P"), call.at("N")};
  const auto of_chunk = [&](Count chunk) { return costs::duality_chunk_flops(all, chunk).total(); };
  Cost cost{costs::sum({of_sequence(call, costs::duality_flops_per_token(all), of_chunk),
                        costs::product({call.tokens, besides})})};
  if (call.chunk == 0) return cost;
  cost.chunk = {all.heads, of_chunk(call.chunk), costs::duality_state_bytes(all),
                costs::duality_token_bytes(all)};
  return cost;
}

/// A scan over `channels` channels.
[[nodiscard]] inline Cost scan(const Call& call, Count channels, Count besides = 0) {
  const costs::ScanConfig all{channels, call.at("N")};
  const auto of_chunk = [&](Count chunk) { return costs::scan_chunk_flops(all, chunk); };
  Cost cost{costs::sum({of_sequence(call, costs::scan_flops_per_token(all), of_chunk),
                        costs::product({call.tokens, besides})})};
  if (call.chunk == 0) return cost;
  cost.chunk = {channels, of_chunk(call.chunk), costs::scan_state_bytes(all), costs::scan_token_bytes(all)};
  return cost;
}

/// A layer that consists of linear maps only, as far as the model counts.
[[nodiscard]] inline Cost maps(const Call& call, const Signature& signature) {
  return {costs::product({call.tokens, linear_maps(signature)})};
}

}  // namespace samestate::row_costs

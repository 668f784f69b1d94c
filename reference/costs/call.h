#pragma once

#include <vector>

#include "reference/costs/recurrence.h"

/// A whole call of one of the matrix recurrences: the bytes that every evaluation must move and the
/// operations of a form. Divided by measured rates they give a lower bound on its time.
namespace samestate::costs {

struct CallConfig {
  RecurrenceConfig head;   ///< one value head; operand_bytes applies to q, k and v
  Count output_bytes = 2;  ///< per element of o
  Count key_heads = 16;
  Count value_heads = 32;
  std::vector<Count> lengths;  ///< tokens of each sequence
  bool initial_state = false;  ///< read from memory; the final state is always written
};

/// Each input is read once and each output is written once; nothing in between leaves the chip:
/// T (2 Hk dk + Hv dv) operands, T Hv dv outputs, T Hv gates, and N Hv dk dv elements of each state.
[[nodiscard]] inline Count call_bytes(const CallConfig& c) {
  const RecurrenceConfig& h = c.head;
  Count tokens = 0;
  for (const Count length : c.lengths) tokens = sum({tokens, length});
  const Count keys = product({2, c.key_heads, h.key_width});
  const Count values = product({c.value_heads, h.value_width});
  const Count token = sum({product({sum({keys, values}), h.operand_bytes}), product({values, c.output_bytes}),
                           product({c.value_heads, h.gates, h.gate_bytes})});
  const Count states = product({static_cast<Count>(c.lengths.size()), c.value_heads, c.initial_state ? 2 : 1,
                                state_elements(h), h.state_bytes});
  return sum({product({tokens, token}), states});
}

/// Operations of the chunked form, or of the recurrent one if chunk is 0. A chunk that the end of its
/// sequence cuts short counts with its actual length.
[[nodiscard]] inline Count call_flops(const CallConfig& c, Count chunk) {
  Count head = 0;
  for (const Count length : c.lengths) {
    if (chunk == 0) {
      head = sum({head, product({length, recurrent_flops_per_token(c.head)})});
      continue;
    }
    head = sum({head, product({length / chunk, chunk_flops(c.head, chunk).total()})});
    if (length % chunk != 0) head = sum({head, chunk_flops(c.head, length % chunk).total()});
  }
  return product({c.value_heads, head});
}

}  // namespace samestate::costs

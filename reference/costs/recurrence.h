#pragma once

#include "reference/costs/counts.h"

/// Operations and memory traffic of one head of a matrix recurrence, token by token or in chunks (EQUATIONS
/// 5.5). An operation is one multiplication, addition or subtraction; exponentials are not counted.
namespace samestate::costs {

/// One head; the defaults are the gated delta rule's.
struct RecurrenceConfig {
  Count key_width = 128;
  Count value_width = 128;
  Count operand_bytes = 2;  ///< q, k, v, o
  Count gate_bytes = 4;     ///< g, beta
  Count state_bytes = 4;
  bool delta = true;        ///< the value that S holds for k is subtracted first, which takes a solve in the
                            ///< chunked form
  bool decay = true;        ///< S <- e^g S
  Count gates = 2;          ///< numbers that come with each token: g and beta; a constant decay adds none
  bool normaliser = false;  ///< z <- z + k is carried too, as one more value column of ones
};

[[nodiscard]] inline RecurrenceConfig gated_delta_rule(Count dk, Count dv) { return {dk, dv}; }
[[nodiscard]] inline RecurrenceConfig delta_rule(Count dk, Count dv) {
  return {dk, dv, 2, 4, 4, true, false, 1};
}
/// Set `gates` to 1 if g is data, and to 0 for RetNet's constant gamma.
[[nodiscard]] inline RecurrenceConfig retention(Count dk, Count dv, Count gates) {
  return {dk, dv, 2, 4, 4, false, true, gates};
}
[[nodiscard]] inline RecurrenceConfig linear_attention(Count dk, Count dv, bool normaliser = false) {
  return {dk, dv, 2, 4, 4, false, false, 0, normaliser};
}

/// Columns of the state: dv, plus one for the normaliser.
[[nodiscard]] inline Count state_columns(const RecurrenceConfig& c) {
  return sum({c.value_width, c.normaliser ? 1 : 0});
}

/// Elements of the state, [dk, dv].
[[nodiscard]] inline Count state_elements(const RecurrenceConfig& c) {
  return product({c.key_width, state_columns(c)});
}

/// Operations per token (GDN-35..39), in terms of order dk dv: decay 1, S^T k 2, write 2, read 2 (COST-23: 7
/// w dv).
[[nodiscard]] inline Count recurrent_flops_per_token(const RecurrenceConfig& c) {
  return product({4 + (c.delta ? 2 : 0) + (c.decay ? 1 : 0), state_elements(c)});
}

/// Bytes of the tensors that are read or written for each token: q, k, v, o and its gates.
[[nodiscard]] inline Count token_bytes(const RecurrenceConfig& c) {
  return sum(
      {product({2, sum({c.key_width, c.value_width}), c.operand_bytes}), product({c.gates, c.gate_bytes})});
}

/// Bytes of one decode step: the state is read and written for every token.
[[nodiscard]] inline Count decode_bytes_per_token(const RecurrenceConfig& c) {
  return sum({product({2, state_elements(c), c.state_bytes}), token_bytes(c)});
}

/// Operations of one chunk, by purpose.
struct ChunkFlops {
  Count scores = 0;  ///< Q K^T and, with a delta term, K K^T: full squares, as matrix units compute them
  Count solve = 0;   ///< (I + A) [U, W] = diag(beta) [V, e^G K] by substitution: C (C - 1) (dk + dv)
  Count within = 0;  ///< P V': 2 C^2 dv
  Count state = 0;   ///< Q S, K^T V' and, with a delta term, W S: 2 C dk dv each
  Count decay = 0;   ///< e^{G_C} S: dk dv

  [[nodiscard]] Count total() const { return sum({scores, solve, within, state, decay}); }
};

/// The matrix products of the WY form on a chunk of C tokens (EQ-02). Terms of order C (dk + dv), and of
/// order C^2 without a width (gates, decays, masks, row scales), are left out, as they are in the recurrent
/// count. Throws Error if chunk < 1.
[[nodiscard]] inline ChunkFlops chunk_flops(const RecurrenceConfig& c, Count chunk) {
  require_at_least(chunk, 1, "chunk");
  const Count square = product({chunk, chunk});
  ChunkFlops f;
  f.scores = product({c.delta ? 4 : 2, square, c.key_width});
  f.solve = c.delta ? product({chunk, chunk - 1, sum({c.key_width, c.value_width})}) : 0;
  f.within = product({2, square, state_columns(c)});
  f.state = product({c.delta ? 6 : 4, chunk, state_elements(c)});
  f.decay = c.decay ? state_elements(c) : 0;
  return f;
}

/// chunk_flops divided by the tokens of the chunk. For the gated delta rule, the recurrent 7 dk dv falls to 6
/// dk dv, and C (5 dk + 3 dv) is added.
[[nodiscard]] inline double chunked_flops_per_token(const RecurrenceConfig& c, Count chunk) {
  return static_cast<double>(chunk_flops(c, chunk).total()) / static_cast<double>(chunk);
}

/// Bytes per token if the state leaves the chip once per chunk (written, then read by the next chunk) and
/// every other intermediate stays on chip. C = 1 is decode.
[[nodiscard]] inline double chunked_bytes_per_token(const RecurrenceConfig& c, Count chunk) {
  require_at_least(chunk, 1, "chunk");
  const Count state = product({2, state_elements(c), c.state_bytes});
  return static_cast<double>(state) / static_cast<double>(chunk) + static_cast<double>(token_bytes(c));
}

/// Operations per byte, which larger chunks raise.
[[nodiscard]] inline double chunked_intensity(const RecurrenceConfig& c, Count chunk) {
  return chunked_flops_per_token(c, chunk) / chunked_bytes_per_token(c, chunk);
}

/// The smallest length at which a fixed state of `state_bytes` is no larger than a cache of `bytes_per_token`
/// (equal to it if the division is exact). Throws Error if bytes_per_token < 1.
[[nodiscard]] inline Count break_even_length(Count state_bytes, Count bytes_per_token) {
  require_at_least(bytes_per_token, 1, "bytes_per_token");
  require_at_least(state_bytes, 0, "state_bytes");
  return state_bytes / bytes_per_token + (state_bytes % bytes_per_token != 0 ? 1 : 0);
}

}  // namespace samestate::costs

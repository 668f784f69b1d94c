#pragma once

#include "reference/costs/counts.h"

/// A head of a matrix recurrence: operations and traffic, token by token or in chunks (EQUATIONS 5.5).
/// An operation is one multiplication, addition or subtraction; exponentials are not counted.
namespace samestate::costs {

/// One head of the gated delta rule.
struct RecurrenceConfig {
  Count key_width = 128;
  Count value_width = 128;
  Count operand_bytes = 2;  ///< q, k, v, o
  Count gate_bytes = 4;     ///< g, beta
  Count state_bytes = 4;
};

/// Elements of the state, [dk, dv].
[[nodiscard]] inline Count state_elements(const RecurrenceConfig& c) {
  return product({c.key_width, c.value_width});
}

/// One token, GDN-35..39, in terms of order dk dv: decay 1, S^T k 2, write 2, read 2 (COST-23: 7 w dv).
[[nodiscard]] inline Count recurrent_flops_per_token(const RecurrenceConfig& c) {
  return product({7, state_elements(c)});
}

/// Bytes of the tensors that a token brings and takes: q, k, v, o, g, beta.
[[nodiscard]] inline Count token_bytes(const RecurrenceConfig& c) {
  return sum({product({2, sum({c.key_width, c.value_width}), c.operand_bytes}), product({2, c.gate_bytes})});
}

/// Bytes of one decode step: the state is read and written for every token.
[[nodiscard]] inline Count decode_bytes_per_token(const RecurrenceConfig& c) {
  return sum({product({2, state_elements(c), c.state_bytes}), token_bytes(c)});
}

/// Operations of one chunk by what they do.
struct ChunkFlops {
  Count scores = 0;  ///< K K^T and Q K^T, whole squares as matrix units compute them: 4 C^2 dk
  Count solve = 0;   ///< (I + A) [U, W] = diag(beta) [V, e^G K] by substitution: C (C - 1) (dk + dv)
  Count within = 0;  ///< P V': 2 C^2 dv
  Count state = 0;   ///< W S, Q S and K^T V': 6 C dk dv
  Count decay = 0;   ///< e^{G_C} S: dk dv

  [[nodiscard]] Count total() const { return sum({scores, solve, within, state, decay}); }
};

/// The products of the WY form on a chunk of C tokens (EQ-02). Terms of order C (dk + dv) or C^2 without a
/// width (gates, decays, masks) are left out, as they are in the recurrent count. Throws Error for chunk < 1.
[[nodiscard]] inline ChunkFlops chunk_flops(const RecurrenceConfig& c, Count chunk) {
  require_at_least(chunk, 1, "chunk");
  const Count square = product({chunk, chunk});
  ChunkFlops f;
  f.scores = product({4, square, c.key_width});
  f.solve = product({chunk, chunk - 1, sum({c.key_width, c.value_width})});
  f.within = product({2, square, c.value_width});
  f.state = product({6, chunk, state_elements(c)});
  f.decay = state_elements(c);
  return f;
}

/// chunk_flops over the tokens of the chunk: 7 dk dv falls to 6 dk dv, and C (5 dk + 3 dv) is added.
[[nodiscard]] inline double chunked_flops_per_token(const RecurrenceConfig& c, Count chunk) {
  return static_cast<double>(chunk_flops(c, chunk).total()) / static_cast<double>(chunk);
}

/// Bytes a token where the state leaves the chip once a chunk (written, and read by the next chunk) and
/// every other intermediate stays on it. C = 1 is decode.
[[nodiscard]] inline double chunked_bytes_per_token(const RecurrenceConfig& c, Count chunk) {
  require_at_least(chunk, 1, "chunk");
  const Count state = product({2, state_elements(c), c.state_bytes});
  return static_cast<double>(state) / static_cast<double>(chunk) + static_cast<double>(token_bytes(c));
}

/// Operations a byte: what a chunk buys.
[[nodiscard]] inline double chunked_intensity(const RecurrenceConfig& c, Count chunk) {
  return chunked_flops_per_token(c, chunk) / chunked_bytes_per_token(c, chunk);
}

/// The length from which a fixed state of `state_bytes` is smaller than a cache of `bytes_per_token`, and at
/// which they are equal where it divides. Throws Error for bytes_per_token < 1.
[[nodiscard]] inline Count break_even_length(Count state_bytes, Count bytes_per_token) {
  require_at_least(bytes_per_token, 1, "bytes_per_token");
  require_at_least(state_bytes, 0, "state_bytes");
  return state_bytes / bytes_per_token + (state_bytes % bytes_per_token != 0 ? 1 : 0);
}

}  // namespace samestate::costs

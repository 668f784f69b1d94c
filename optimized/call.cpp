#include "optimized/call.h"

#include <array>
#include <cstddef>

#include "optimized/call_checks.h"
#include "reference/error.h"

namespace samestate::calls {

using checks::require;
using checks::require_rows;
using checks::require_shape;
using checks::require_writable;
using checks::text;

namespace {

void require_sequences(const View<const std::int64_t, 1>& offsets, std::int64_t batch, std::int64_t tokens) {
  require(batch == 1,
          "batch is " + std::to_string(batch) + " with cu_seqlens; packed sequences need batch 1");
  require(offsets.shape[0] >= 1, "cu_seqlens holds no element; it needs at least one, the first offset");
  std::int64_t previous = 0;
  for (std::int64_t n = 0; n < offsets.shape[0]; ++n) {
    const std::int64_t offset = offsets(n);
    require(offset >= previous && offset <= tokens,
            "cu_seqlens[" + std::to_string(n) + "] is " + std::to_string(offset) + "; it must be in [" +
                std::to_string(previous) + ", " + std::to_string(tokens) + "], ascending and within T");
    previous = offset;
  }
}

}  // namespace

Sizes checked_inputs(const Arguments& a) {
  const Sizes s{a.q.shape[0], a.q.shape[1], a.q.shape[2], a.v.shape[2],
                a.q.shape[3], a.v.shape[3], a.sequences()};
  require(s.batch >= 0 && s.tokens >= 0, "q is " + text(a.q.shape) + "; batch and tokens must be at least 0");
  require(s.key_heads >= 1 && s.dk >= 1, "q is " + text(a.q.shape) + "; heads and dk must be at least 1");
  require(s.dv >= 1, "v is " + text(a.v.shape) + "; dv must be at least 1");
  require(s.value_heads >= 1 && s.value_heads % s.key_heads == 0,
          "v has " + std::to_string(s.value_heads) + " heads and q has " + std::to_string(s.key_heads) +
              "; the value heads must be a multiple of the key heads");
  require(a.threads >= 1, "threads is " + std::to_string(a.threads) + "; it must be at least 1");
  if (a.cu_seqlens.present()) require_sequences(a.cu_seqlens, s.batch, s.tokens);

  require_shape<const float, 4>("q", a.q, {s.batch, s.tokens, s.key_heads, s.dk}, false);
  require_shape<const float, 4>("k", a.k, {s.batch, s.tokens, s.key_heads, s.dk}, false);
  require_shape<const float, 4>("v", a.v, {s.batch, s.tokens, s.value_heads, s.dv}, false);
  require_shape<const float, 3>("g", a.g, {s.batch, s.tokens, s.value_heads}, true);
  require_shape<const float, 3>("beta", a.beta, {s.batch, s.tokens, s.value_heads}, true);
  require_shape<const float, 4>("initial_state", a.initial_state, {s.sequences, s.value_heads, s.dk, s.dv},
                                true);
  require_rows("q", a.q);
  require_rows("k", a.k);
  require_rows("v", a.v);
  require_rows("initial_state", a.initial_state);
  return s;
}

Sizes checked_sizes(const Arguments& a) {
  const Sizes s = checked_inputs(a);
  require_shape<float, 4>("o", a.o, {s.batch, s.tokens, s.value_heads, s.dv}, false);
  require_shape<float, 4>("final_state", a.final_state, {s.sequences, s.value_heads, s.dk, s.dv}, true);
  require_rows("o", a.o);
  require_rows("final_state", a.final_state);
  require_writable("o", a.o);
  require_writable("final_state", a.final_state);
  require(!a.final_state.present() || a.initial_state.data != a.final_state.data ||
              a.initial_state.stride == a.final_state.stride,
          "final_state shares the memory of initial_state with other strides " + text(a.final_state.stride) +
              " against " + text(a.initial_state.stride) + "; in place needs the same strides");
  return s;
}

std::int64_t key_head_of(const Arguments& a, const Sizes& sizes, std::int64_t value_head) {
  return a.head_map == HeadMap::interleaved ? value_head / (sizes.value_heads / sizes.key_heads)
                                            : value_head % sizes.key_heads;
}

std::int64_t longest_sequence(const Arguments& a, const Sizes& sizes) {
  if (!a.cu_seqlens.present()) return sizes.tokens;
  std::int64_t longest = 0;
  for (std::int64_t n = 0; n < sizes.sequences; ++n) {
    longest = std::max(longest, a.cu_seqlens(n + 1) - a.cu_seqlens(n));
  }
  return longest;
}

std::string unsupported_reason(const System& system, const Arguments& arguments, const Contract& contract) {
  const std::string name(system.name);
  if (!system.decay && arguments.g.present()) return name + " has no decay; leave g absent";
  if (!system.delta && arguments.beta.present()) return name + " has no write strength; leave beta absent";
  for (const Format format : {contract.qk, contract.beta_k, contract.A, contract.inverse_operand, contract.T,
                              contract.beta_v, contract.beta_exp_k, contract.residual, contract.U, contract.W,
                              contract.state_operand, contract.v_new, contract.v_decayed, contract.k_decayed,
                              contract.P, contract.q_decayed, contract.state, contract.output}) {
    if (format == Format::fp64)
      return "contract " + contract.name + " asks for fp64; these kernels work in fp32";
  }
  return {};
}

SequenceTokens tokens_of(const Arguments& a, const Sizes& sizes, std::int64_t sequence) {
  if (!a.cu_seqlens.present()) return {sequence, 0, sizes.tokens};
  const std::int64_t first = a.cu_seqlens(sequence);
  return {0, first, a.cu_seqlens(sequence + 1) - first};
}

Head head_of(const Arguments& a, const Sizes& sizes, std::int64_t sequence, std::int64_t value_head) {
  const SequenceTokens tokens = tokens_of(a, sizes, sequence);
  const std::int64_t key_head = key_head_of(a, sizes, value_head);
  Head head;
  head.tokens = tokens.count;
  head.dk = sizes.dk;
  head.dv = sizes.dv;
  head.q = rows_of(a.q, tokens, key_head);
  head.k = rows_of(a.k, tokens, key_head);
  head.v = rows_of(a.v, tokens, value_head);
  head.g = rows_of(a.g, tokens, value_head);
  head.beta = rows_of(a.beta, tokens, value_head);
  head.o = rows_of(a.o, tokens, value_head);
  head.initial_state = state_of(a.initial_state, sequence, value_head);
  head.final_state = state_of(a.final_state, sequence, value_head);
  return head;
}

}  // namespace samestate::calls

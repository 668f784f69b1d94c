#include "optimized/call.h"

#include <array>
#include <cstddef>

#include "reference/error.h"

namespace samestate::calls {
namespace {

void require(bool holds, const std::string& message) {
  if (!holds) throw Error(message);
}

template <std::size_t Rank>
std::string text(const std::array<std::int64_t, Rank>& shape) {
  std::string list = "[";
  for (std::size_t d = 0; d < Rank; ++d) list += (d ? ", " : "") + std::to_string(shape[d]);
  return list + "]";
}

/// A tensor that holds elements needs memory; an optional one may be absent.
template <class T, std::size_t Rank>
void require_shape(const std::string& name, const View<T, Rank>& view,
                   const std::array<std::int64_t, Rank>& shape, bool optional) {
  if (!view.present()) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    return require(optional || count == 0, name + " is absent; it must be " + text(shape));
  }
  require(view.shape == shape, name + " is " + text(view.shape) + "; q, v and the sequences make it " +
                                   text(shape) + "; pass that shape");
}

template <class T, std::size_t Rank>
void require_writable(const std::string& name, const View<T, Rank>& view) {
  // No element of an empty tensor is written, so none is written twice.
  if (view.present() && view.size() == 0) return;
  for (std::size_t d = 0; d < Rank; ++d) {
    require(!view.present() || view.shape[d] <= 1 || view.stride[d] != 0,
            name + " has stride 0 in dimension " + std::to_string(d) + " of extent " +
                std::to_string(view.shape[d]) +
                "; an output may not be broadcast, give it memory of its own");
  }
}

/// The elements of a row must be contiguous (optimized/kernel.h).
template <class T>
void require_rows(const std::string& name, const View<T, 4>& view) {
  require(!view.present() || view.size() == 0 || view.shape[3] == 1 || view.stride[3] == 1,
          name + " has stride " + std::to_string(view.stride[3]) +
              " in its last dimension; it must be 1, pass a copy");
}

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

/// Returns the rows of one head: dimension 1 of a [B, T, H, D] view, starting at token `first`.
template <class T>
Rows<T> rows_of(const View<T, 4>& view, std::int64_t batch, std::int64_t first, std::int64_t head) {
  if (!view.present()) return {};
  return {view.data + batch * view.stride[0] + first * view.stride[1] + head * view.stride[2], view.stride[1],
          view.stride[3]};
}

Rows<const float> rows_of(const View<const float, 3>& view, std::int64_t batch, std::int64_t first,
                          std::int64_t head) {
  if (!view.present()) return {};
  return {view.data + batch * view.stride[0] + first * view.stride[1] + head * view.stride[2], view.stride[1],
          1};
}

/// Returns the [dk, dv] matrix of one head of a [N, Hv, dk, dv] view.
template <class T>
Rows<T> state_of(const View<T, 4>& view, std::int64_t sequence, std::int64_t head) {
  if (!view.present()) return {};
  return {view.data + sequence * view.stride[0] + head * view.stride[1], view.stride[2], view.stride[3]};
}

}  // namespace

Sizes checked_sizes(const Arguments& a) {
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
  require_shape<float, 4>("o", a.o, {s.batch, s.tokens, s.value_heads, s.dv}, false);
  const std::array<std::int64_t, 4> state{s.sequences, s.value_heads, s.dk, s.dv};
  require_shape("initial_state", a.initial_state, state, true);
  require_shape("final_state", a.final_state, state, true);
  require_rows("q", a.q);
  require_rows("k", a.k);
  require_rows("v", a.v);
  require_rows("o", a.o);
  require_rows("initial_state", a.initial_state);
  require_rows("final_state", a.final_state);
  require_writable("o", a.o);
  require_writable("final_state", a.final_state);
  require(!a.final_state.present() || a.initial_state.data != a.final_state.data ||
              a.initial_state.stride == a.final_state.stride,
          "final_state shares the memory of initial_state with other strides " + text(a.final_state.stride) +
              " against " + text(a.initial_state.stride) + "; in place needs the same strides");
  return s;
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

Head head_of(const Arguments& a, const Sizes& sizes, std::int64_t sequence, std::int64_t value_head) {
  const bool packed = a.cu_seqlens.present();
  const std::int64_t batch = packed ? 0 : sequence;
  const std::int64_t first = packed ? a.cu_seqlens(sequence) : 0;
  const std::int64_t end = packed ? a.cu_seqlens(sequence + 1) : sizes.tokens;
  const std::int64_t key_head = a.head_map == HeadMap::interleaved
                                    ? value_head / (sizes.value_heads / sizes.key_heads)
                                    : value_head % sizes.key_heads;
  Head head;
  head.tokens = end - first;
  head.dk = sizes.dk;
  head.dv = sizes.dv;
  head.q = rows_of(a.q, batch, first, key_head);
  head.k = rows_of(a.k, batch, first, key_head);
  head.v = rows_of(a.v, batch, first, value_head);
  head.g = rows_of(a.g, batch, first, value_head);
  head.beta = rows_of(a.beta, batch, first, value_head);
  head.o = rows_of(a.o, batch, first, value_head);
  head.initial_state = state_of(a.initial_state, sequence, value_head);
  head.final_state = state_of(a.final_state, sequence, value_head);
  return head;
}

}  // namespace samestate::calls

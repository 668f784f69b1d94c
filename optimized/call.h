#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "optimized/kernel.h"

/// The steps from the tensors of a call to one value head of one sequence, and the threads that share such
/// heads: code that CPU kernels and the host side of device kernels have in common.
namespace samestate::calls {

/// The terms of a system's equation. S <- e^g S + k u^T; u = beta (v - S^T k) with the delta term, else u =
/// v.
struct System {
  std::string_view name;
  bool delta;
  bool decay;
};
inline constexpr System GATED_DELTA_RULE{"gated_delta_rule", true, true};
inline constexpr System DELTA_RULE{"delta_rule", true, false};
inline constexpr System RETENTION{"retention", false, true};
inline constexpr System LINEAR_ATTENTION{"linear_attention", false, false};

struct Sizes {
  std::int64_t batch, tokens, key_heads, value_heads, dk, dv, sequences;
};

/// The sizes of a call, read from q and v. Throws Error if the views are inconsistent: shapes that differ, a
/// missing tensor, sizes below 1, a last dimension with a stride other than 1, broadcast outputs, or
/// cu_seqlens that do not ascend within [0, T].
[[nodiscard]] Sizes checked_sizes(const Arguments& arguments);

/// The same for a call whose outputs are other tensors than o and final_state, which are not read.
[[nodiscard]] Sizes checked_inputs(const Arguments& arguments);

/// The key head that serves a value head.
[[nodiscard]] std::int64_t key_head_of(const Arguments& arguments, const Sizes& sizes,
                                       std::int64_t value_head);

/// The number of tokens of the longest sequence.
[[nodiscard]] std::int64_t longest_sequence(const Arguments& arguments, const Sizes& sizes);

/// The reason why no kernel of this table runs this call; empty if one may.
[[nodiscard]] std::string unsupported_reason(const System& system, const Arguments& arguments,
                                             const Contract& contract);

/// A strided vector or matrix of one head; rows are tokens (or rows of the state).
template <class T>
struct Rows {
  T* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t stride = 0;

  [[nodiscard]] T* row(std::int64_t i) const { return data + i * row_stride; }

  /// Copies elements [first, first + count) of row i into a dense array.
  void load(std::int64_t i, std::int64_t first, std::int64_t count, float* to) const {
    const T* from = row(i) + first * stride;
    if (stride == 1) {
      std::copy_n(from, count, to);
    } else {
      for (std::int64_t c = 0; c < count; ++c) to[c] = from[c * stride];
    }
  }

  void store(std::int64_t i, std::int64_t first, std::int64_t count, const float* from) const {
    T* to = row(i) + first * stride;
    for (std::int64_t c = 0; c < count; ++c) to[c * stride] = from[c];
  }
};

/// Where the tokens of a sequence are: rows [first, first + count) of the batch.
struct SequenceTokens {
  std::int64_t batch, first, count;
};

[[nodiscard]] SequenceTokens tokens_of(const Arguments& arguments, const Sizes& sizes, std::int64_t sequence);

/// The rows of one head of a [B, T, H, D] view, from `tokens.first` on; absent if the view is.
template <class T>
[[nodiscard]] Rows<T> rows_of(const View<T, 4>& view, const SequenceTokens& tokens, std::int64_t head) {
  if (!view.present()) return {};
  return {view.data + tokens.batch * view.stride[0] + tokens.first * view.stride[1] + head * view.stride[2],
          view.stride[1], view.stride[3]};
}

/// The same for a [B, T, H] view, whose rows hold one element.
template <class T>
[[nodiscard]] Rows<T> rows_of(const View<T, 3>& view, const SequenceTokens& tokens, std::int64_t head) {
  if (!view.present()) return {};
  return {view.data + tokens.batch * view.stride[0] + tokens.first * view.stride[1] + head * view.stride[2],
          view.stride[1], 1};
}

/// The [dk, dv] matrix of one head of a [N, Hv, dk, dv] view; absent if the view is.
template <class T>
[[nodiscard]] Rows<T> state_of(const View<T, 4>& view, std::int64_t sequence, std::int64_t head) {
  if (!view.present()) return {};
  return {view.data + sequence * view.stride[0] + head * view.stride[1], view.stride[2], view.stride[3]};
}

/// One value head of one sequence, with the key head that serves it.
struct Head {
  std::int64_t tokens = 0;
  std::int64_t dk = 0;
  std::int64_t dv = 0;
  Rows<const float> q, k;           ///< [tokens, dk]
  Rows<const float> v;              ///< [tokens, dv]
  Rows<const float> g, beta;        ///< [tokens, 1]; absent if data is null
  Rows<const float> initial_state;  ///< [dk, dv]; zero if data is null
  Rows<float> o;                    ///< [tokens, dv]
  Rows<float> final_state;          ///< [dk, dv]; not wanted if data is null
};

[[nodiscard]] Head head_of(const Arguments& arguments, const Sizes& sizes, std::int64_t sequence,
                           std::int64_t value_head);

/// Calls work(i) once for every i in [0, count) on at most `threads` threads; each thread uses its own
/// `work`, made by make_work(). An exception stops the remaining tasks and is thrown to the caller.
template <class MakeWork>
void for_each_task(std::int64_t count, int threads, const MakeWork& make_work) {
  std::atomic<std::int64_t> next{0};
  std::mutex guard;
  std::exception_ptr failure;
  const auto drain = [&] {
    try {
      auto work = make_work();
      for (std::int64_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      const std::lock_guard lock(guard);
      failure = std::current_exception();
      next = count;
    }
  };
  {
    std::vector<std::jthread> helpers;
    try {
      for (std::int64_t i = 1; i < std::min<std::int64_t>(threads, count); ++i) helpers.emplace_back(drain);
    } catch (const std::system_error&) {
      // The machine cannot start more threads; those that started share all tasks.
    }
    drain();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace samestate::calls

namespace samestate::cpu {
using namespace calls;
}

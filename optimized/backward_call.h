#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "optimized/call.h"
#include "optimized/kernel_call.h"

/// The backward pass of the recurrent family as its kernels take it. A KernelCall with the setting backward = 1 has the inputs
/// of the forward pass and the cotangents of its outputs, `d.o` and `d.final_state`, and asks for the gradients of its inputs:
/// `d.q`, `d.k`, `d.v`, `d.g`, `d.beta` and `d.initial_state`, each in the shape of its tensor. The rules of
/// optimized/kernel.h on memory, strides and repetition apply; rows of tokens that no sequence owns are not written.
namespace samestate::calls {

/// The tensors and settings of one backward call. N is the number of sequences, as in Arguments.
struct BackwardArguments {
  Arguments forward;                   ///< inputs and settings; its outputs are absent
  View<const float, 4> d_o;            ///< [B, T, Hv, dv]; if absent, 0
  View<const float, 4> d_final_state;  ///< [N, Hv, dk, dv]; if absent, 0
  // The gradients; one that is absent is not wanted.
  View<float, 4> d_q, d_k;         ///< [B, T, Hk, dk], of q and k as they are given
  View<float, 4> d_v;              ///< [B, T, Hv, dv]
  View<float, 3> d_g, d_beta;      ///< [B, T, Hv]
  View<float, 4> d_initial_state;  ///< [N, Hv, dk, dv]; it exists whether or not an initial state is given
};

/// The call with its tensors by name. Views are those of the call, whose offsets have to outlive the result. Throws Error
/// for a call in the forward direction, one over ranks, a tensor of another rank or type, and a setting that Arguments cannot
/// express.
[[nodiscard]] BackwardArguments backward_arguments_of(const KernelCall& call);

/// The sizes of a call. Throws Error as checked_inputs does, and, naming the tensor, for a cotangent or gradient of another
/// shape, without contiguous rows, or broadcast if it is written.
[[nodiscard]] Sizes checked_sizes(const BackwardArguments& arguments);

/// The reason why no kernel of this table runs this call; empty if one may.
[[nodiscard]] std::string unsupported_reason(const System& system, const BackwardArguments& arguments,
                                             const Contract& contract);

/// One value head of one sequence. Rows of absent tensors have no data.
struct BackwardHead {
  Head forward;                     ///< its inputs
  Rows<const float> d_o;            ///< [tokens, dv]
  Rows<const float> d_final_state;  ///< [dk, dv]
  Rows<float> d_v;                  ///< [tokens, dv]
  Rows<float> d_g, d_beta;          ///< [tokens, 1]
  Rows<float> d_initial_state;      ///< [dk, dv]
};

/// One key head of one sequence with its value heads, in their order: d_q and d_k are sums over them.
struct BackwardGroup {
  Rows<float> d_q, d_k;  ///< [tokens, dk]
  std::vector<BackwardHead> heads;
};

[[nodiscard]] BackwardGroup backward_group_of(const BackwardArguments& arguments, const Sizes& sizes,
                                              std::int64_t sequence, std::int64_t key_head);

}  // namespace samestate::calls

#include "optimized/backward_call.h"

#include <array>

#include "optimized/call_checks.h"
#include "optimized/call_kernel.h"
#include "reference/error.h"

namespace samestate::calls {
namespace {

using checks::require_rows;
using checks::require_shape;
using checks::require_writable;

/// A cotangent or a gradient [.., rows of contiguous elements].
template <class T>
void require_tensor(const std::string& name, const View<T, 4>& view,
                    const std::array<std::int64_t, 4>& shape) {
  require_shape(name, view, shape, true);
  require_rows(name, view);
}

}  // namespace

BackwardArguments backward_arguments_of(const KernelCall& call) {
  if (call.setting("backward") != 1.0)
    throw Error("the call's setting backward is " + std::to_string(call.setting("backward")) +
                "; a backward kernel needs 1, call the forward kernel instead");
  if (!call.cuts.empty())
    throw Error("the call has cuts; the backward kernels run on one rank, leave cuts empty");
  KernelCall forward = call;
  forward.set("backward", 0.0);
  forward.outputs.clear();
  BackwardArguments a;
  a.forward = arguments_of(forward);
  a.d_o = call.view<const float, 4>("d.o");
  a.d_final_state = call.view<const float, 4>("d.final_state");
  a.d_q = call.view<float, 4>("d.q");
  a.d_k = call.view<float, 4>("d.k");
  a.d_v = call.view<float, 4>("d.v");
  a.d_g = call.view<float, 3>("d.g");
  a.d_beta = call.view<float, 3>("d.beta");
  a.d_initial_state = call.view<float, 4>("d.initial_state");
  return a;
}

Sizes checked_sizes(const BackwardArguments& a) {
  const Sizes s = checked_inputs(a.forward);
  const std::array<std::int64_t, 4> key{s.batch, s.tokens, s.key_heads, s.dk};
  const std::array<std::int64_t, 4> value{s.batch, s.tokens, s.value_heads, s.dv};
  const std::array<std::int64_t, 4> state{s.sequences, s.value_heads, s.dk, s.dv};
  const std::array<std::int64_t, 3> gate{s.batch, s.tokens, s.value_heads};
  require_tensor("d.o", a.d_o, value);
  require_tensor("d.final_state", a.d_final_state, state);
  require_tensor("d.q", a.d_q, key);
  require_tensor("d.k", a.d_k, key);
  require_tensor("d.v", a.d_v, value);
  require_shape("d.g", a.d_g, gate, true);
  require_shape("d.beta", a.d_beta, gate, true);
  require_tensor("d.initial_state", a.d_initial_state, state);
  require_writable("d.q", a.d_q);
  require_writable("d.k", a.d_k);
  require_writable("d.v", a.d_v);
  require_writable("d.g", a.d_g);
  require_writable("d.beta", a.d_beta);
  require_writable("d.initial_state", a.d_initial_state);
  return s;
}

std::string unsupported_reason(const System& system, const BackwardArguments& arguments,
                               const Contract& contract) {
  const std::string name(system.name);
  if (!system.decay && arguments.d_g.present()) return name + " has no decay; leave d.g absent";
  if (!system.delta && arguments.d_beta.present())
    return name + " has no write strength; leave d.beta absent";
  return unsupported_reason(system, arguments.forward, contract);
}

BackwardGroup backward_group_of(const BackwardArguments& a, const Sizes& sizes, std::int64_t sequence,
                                std::int64_t key_head) {
  const SequenceTokens tokens = tokens_of(a.forward, sizes, sequence);
  BackwardGroup group{rows_of(a.d_q, tokens, key_head), rows_of(a.d_k, tokens, key_head), {}};
  for (std::int64_t h = 0; h < sizes.value_heads; ++h) {
    if (key_head_of(a.forward, sizes, h) != key_head) continue;
    group.heads.push_back({head_of(a.forward, sizes, sequence, h), rows_of(a.d_o, tokens, h),
                           state_of(a.d_final_state, sequence, h), rows_of(a.d_v, tokens, h),
                           rows_of(a.d_g, tokens, h), rows_of(a.d_beta, tokens, h),
                           state_of(a.d_initial_state, sequence, h)});
  }
  return group;
}

}  // namespace samestate::calls

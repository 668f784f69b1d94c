#pragma once

#include "optimized/backward_call.h"

/// The backward pass of the recurrent family token by token on the CPU, for all systems from one source. From the last
/// token to the first, with R = e^g S of the state S before the token, e = v - R^T k (or v), u = beta e (or v), and D the
/// cotangent of the state after it:
///   D <- D + (scale q) do^T;  dq = scale (R + k u^T) do;  du = D^T k;  dbeta = du . e;  dv = beta du (or du);
///   dk = D u - R dv (or D v);  D <- D - k dv^T (or D);  dg = <D, R>;  D <- e^g D.
/// A reset, e^g = 0, passes exactly nothing back, and its own dg is 0. All of it is in fp32; d.q, d.k and d.v are rounded to
/// contract.output as they are written and d.initial_state to contract.state. States are kept about sqrt(T) tokens apart. A
/// task is one key head of one sequence, with its value heads one after the other, so that the sums over a group are in a
/// fixed order. `chunk` is not read.
namespace samestate::cpu {

/// Runs a call with the tensors of calls::BackwardArguments. Throws Error if the views are inconsistent (checked_sizes).
template <const calls::System& system>
[[nodiscard]] Outcome run_recurrent_backward(const KernelCall& call, const Contract& contract);

}  // namespace samestate::cpu

#pragma once

#include <string_view>
#include <vector>

#include "harness/systems/tensor_system.h"
#include "oracles/judge_policy.h"

namespace samestate {

/// The part of a sequence that is judged by itself: all of it, or some tokens that depend on no other's
/// result.
struct SequencePart {
  Call call;
  std::vector<Index> cuts;
  Tensors<double> inputs, outputs;
  std::vector<Index> tokens;  ///< indices in the sequence, in the order of the part; empty means all of it
};

/// Some tokens of a sequence whose calls end at `cuts`, for a system that is held_by_token().
[[nodiscard]] SequencePart part_of(const Operator& row, const Call& call, const std::vector<Index>& cuts,
                                   const Tensors<double>& inputs, const Tensors<double>& outputs,
                                   std::vector<Index> tokens);

/// The worst judgement of the sequences of a run that made `calls`, as far as `policy` looks. `outputs` of a
/// layer may hold taps: its stages are judged too. What every sequence would be held against goes to `oracles` where somebody
/// wants it, which changes nothing of the judgement.
[[nodiscard]] Judgement judge_tensors(const Resolved& r, const TensorSystem& system, const TensorCalls& calls,
                                      const std::vector<CaseTensor>& inputs,
                                      const std::vector<Tensors<double>>& outputs, const JudgePolicy& policy,
                                      std::vector<OperatorOracle>* oracles = nullptr);

}  // namespace samestate

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

/// Returns the worst judgement of the sequences of a run that made `calls`, as far as `policy` looks. The
/// `outputs` of a layer may contain taps; its stages are then judged too. If `oracles` is not null, it
/// receives what every sequence would be compared with; the judgement is the same either way.
[[nodiscard]] Judgement judge_tensors(const Resolved& r, const TensorSystem& system, const TensorCalls& calls,
                                      const std::vector<CaseTensor>& inputs,
                                      const std::vector<Tensors<double>>& outputs, const JudgePolicy& policy,
                                      std::vector<OperatorOracle>* oracles = nullptr);

}  // namespace samestate

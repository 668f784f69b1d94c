#pragma once

#include <string_view>
#include <vector>

#include "harness/systems/tensor_system.h"

namespace samestate {

/// The worst judgement of the sequences of a run whose calls were of the form `native`; what they were held
/// against goes to `oracles`. `outputs` of a layer may hold taps: its stages are judged too.
[[nodiscard]] Judgement judge_tensors(const Resolved& r, const TensorSystem& system, std::string_view native,
                                      const std::vector<CaseTensor>& inputs,
                                      const std::vector<Tensors<double>>& outputs,
                                      std::vector<OperatorOracle>* oracles = nullptr);

}  // namespace samestate

#include "oracles/systems/kernel_choice.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace samestate {

std::optional<ChosenByKernel> chosen_by_kernel(const Operator& op, const Call& call,
                                               const Tensors<double>& inputs, const std::vector<Index>& cuts,
                                               const Contract& contract, const OperatorOracle& oracle,
                                               const Tensors<double>& actual) {
  const auto open = [](const auto& output) { return output.second.any(); };
  if (op.choice == nullptr || !cuts.empty() || !std::ranges::any_of(oracle.undecided, open)) return {};
  ChosenByKernel chosen{call, {}};
  {
    RunningModel model = RunningModel::of(contract);
    model.tiny *= op.late_factors;
    const RunningScope scope(model);
    chosen.call.choice = std::make_shared<const Matrix<Index>>(op.choice(call, inputs, actual));
  }
  if ((chosen.call.choice->array() < 0).all()) return {};
  chosen.oracle = operator_oracle(op, chosen.call, inputs, cuts, contract);
  return chosen;
}

}  // namespace samestate

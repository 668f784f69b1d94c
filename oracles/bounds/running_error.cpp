#include "oracles/bounds/running_error.h"

#include "oracles/contracts.h"
#include "oracles/named_points.h"

namespace samestate {

RunningModel RunningModel::of(const Contract& contract) {
  RunningModel model;
  model.ex2 = contract.exponential == Exponential::ex2;
  model.operand = unit_operand(contract);
  model.switched = switched_by(contract);
  // 16-bit operands: values that a kernel keeps between two products have their format. fp32 adds nothing to
  // the working precision.
  if (contract.input != Format::fp32 && contract.input != Format::none && contract.input != Format::fp64) {
    model.stored_unit = unit_roundoff(contract.input);
    model.stored_tiny = subnormal_error(contract.input);
    model.stored_most = largest_finite(contract.input);
  }
  return model;
}

RunningModel RunningModel::twin(const Contract& contract) {
  RunningModel model = between_points(contract);
  model.operand = unit_operand(contract);
  model.of_twin = true;
  if (of(contract).stored_unit != 0.0) model.nearest = contract.input;
  return model;
}

RunningModel RunningModel::between_points(const Contract& contract) {
  RunningModel model = of(contract);
  model.stored_unit = model.stored_tiny = 0.0;
  model.stored_most = kUnlimited;
  model.operand = Format::none;
  return model;
}

}  // namespace samestate

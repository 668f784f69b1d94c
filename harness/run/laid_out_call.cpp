#include "harness/run/laid_out_call.h"

#include <algorithm>
#include <string>

namespace samestate {
namespace {

void place_in(std::vector<CallTensor>& tensors, const std::vector<GuardedTensor>& places) {
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i] = with_elements(tensors[i], places[i].tensor());
}

}  // namespace

LaidOutCall::LaidOutCall(const WholeCall& whole, Layout layout)
    : whole_(&whole),
      inputs_(guarded_tensors(whole.input_places(), layout, 0)),
      outputs_(guarded_tensors(whole.output_places(), layout, inputs_.size())),
      call_(whole.call()) {
  for (std::size_t i = 0; i < inputs_.size(); ++i) inputs_[i].set(values_of(elements_of(call_.inputs[i])));
  // All tensors of one buffer are closed at the same time.
  for (std::size_t i = 0; i < inputs_.size(); ++i) inputs_[i].close_input(call_.inputs[i].name);
  for (std::size_t i = 0; i < outputs_.size(); ++i) outputs_[i].open_output(call_.outputs[i].name);
  place_in(call_.inputs, inputs_);
  place_in(call_.outputs, outputs_);
}

void LaidOutCall::give_back() const {
  const KernelCall& whole = whole_->call();
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    inputs_[i].check_surroundings(call_.inputs[i].name);
    if (!inputs_[i].same_as(values_of(elements_of(whole.inputs[i]))))
      throw Trespass("the kernel changed its input " + std::string(call_.inputs[i].name));
  }
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    outputs_[i].check_surroundings(call_.outputs[i].name);
    const std::vector<float> written = outputs_[i].get();
    std::copy(written.begin(), written.end(), elements_of(whole.outputs[i]).data);
  }
}

}  // namespace samestate

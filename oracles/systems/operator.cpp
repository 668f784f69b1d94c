#include "oracles/systems/operator.h"

#include <algorithm>
#include <numeric>

#include "oracles/systems/rows.h"

namespace samestate {

Index TensorSpec::size() const {
  return std::accumulate(shape.begin(), shape.end(), Index{1}, std::multiplies<>());
}

Index Call::at(std::string_view name) const { return parameters.at(name); }

const OperatorForm* Operator::form(std::string_view wanted) const {
  const auto found =
      std::find_if(forms.begin(), forms.end(), [&](const OperatorForm& f) { return f.name == wanted; });
  return found == forms.end() ? nullptr : &*found;
}

std::span<const Operator> operators() {
  static const std::vector<Operator> rows = [] {
    std::vector<Operator> all;
    for (const auto group : {linear_attention_operators,    retnet_operators,
                             state_space_operators,         mamba_operators,
                             activation_gate_operators,     norm_operators,
                             rotary_embedding_operators,    short_convolution_operators,
                             softmax_attention_operators,   gated_delta_net_operators,
                             gated_delta_step_operators,    test_time_training_operators,
                             overlap_windows_operators,     dendritic_router_operators,
                             dendritic_attention_operators, latent_attention_operators,
                             expert_router_operators,       mixture_of_experts_operators,
                             recurrence_backward_operators, gradient_operators,
                             channel_gate_operators}) {
      for (const Operator& row : group()) all.push_back(row);
    }
    return all;
  }();
  return rows;
}

const Operator* find_operator(std::string_view name) {
  for (const Operator& row : operators()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace samestate

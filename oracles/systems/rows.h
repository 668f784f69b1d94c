#pragma once

#include <string_view>
#include <vector>

#include "oracles/systems/operator.h"

/// The rows of the table of operators, one function for each file of this folder.
namespace samestate {

/// A system's equation for `repro --script`: Python that defines `reference` in float64 with numpy as np
/// only, as numpy_text.h says. It is next to the row that states the same equation, and tests/harness/script/
/// compares it with the row's own evaluation.
struct NumpyText {
  std::string_view system, text;
};

/// Operator::late_factors for the l2norms of q and k: at most (1e-6)^-1/2 each.
inline constexpr double kKeyLengthFactors = 1e6;

[[nodiscard]] std::vector<Operator> linear_attention_operators();
[[nodiscard]] std::vector<Operator> recurrence_backward_operators();
[[nodiscard]] std::vector<Operator> gradient_operators();
[[nodiscard]] std::vector<Operator> channel_gate_operators();
[[nodiscard]] std::vector<Operator> retnet_operators();
[[nodiscard]] std::vector<Operator> state_space_operators();
[[nodiscard]] std::vector<Operator> mamba_operators();
[[nodiscard]] std::vector<Operator> activation_gate_operators();
[[nodiscard]] std::vector<Operator> norm_operators();
[[nodiscard]] std::vector<Operator> rotary_embedding_operators();
[[nodiscard]] std::vector<Operator> short_convolution_operators();
[[nodiscard]] std::vector<Operator> softmax_attention_operators();
[[nodiscard]] std::vector<Operator> gated_delta_net_operators();
[[nodiscard]] std::vector<Operator> gated_delta_step_operators();
[[nodiscard]] std::vector<Operator> test_time_training_operators();
[[nodiscard]] std::vector<Operator> overlap_windows_operators();
[[nodiscard]] std::vector<Operator> dendritic_router_operators();
[[nodiscard]] std::vector<Operator> dendritic_attention_operators();
[[nodiscard]] std::vector<Operator> latent_attention_operators();
[[nodiscard]] std::vector<Operator> expert_router_operators();
[[nodiscard]] std::vector<Operator> mixture_of_experts_operators();

/// The texts of the rows of one file.
[[nodiscard]] std::vector<NumpyText> family_numpy();
[[nodiscard]] std::vector<NumpyText> linear_attention_numpy();
[[nodiscard]] std::vector<NumpyText> channel_gate_numpy();
[[nodiscard]] std::vector<NumpyText> state_space_numpy();
[[nodiscard]] std::vector<NumpyText> activation_gate_numpy();
[[nodiscard]] std::vector<NumpyText> norm_numpy();
[[nodiscard]] std::vector<NumpyText> rotary_embedding_numpy();
[[nodiscard]] std::vector<NumpyText> short_convolution_numpy();
[[nodiscard]] std::vector<NumpyText> softmax_attention_numpy();
[[nodiscard]] std::vector<NumpyText> gated_delta_step_numpy();

/// The four instantiations of a row's evaluation, made from one template `Form::evaluate<Scalar>(call,
/// inputs)`.
template <class Form>
void evaluate_with(Operator& row) {
  row.exact = [](const Call& call, const Tensors<double>& inputs) {
    return Form::template evaluate<double>(call, inputs);
  };
  row.running = [](const Call& call, const Tensors<Running>& inputs) {
    const KeysBehind behind(call.behind);
    return Form::template evaluate<Running>(call, inputs);
  };
  row.stored = [](const Call& call, const Tensors<Stored>& inputs) {
    const KeysBehind behind(call.behind);
    return Form::template evaluate<Stored>(call, inputs);
  };
  row.stochastic = [](const Call& call, const Tensors<Stochastic>& inputs) {
    const KeysBehind behind(call.behind);
    return Form::template evaluate<Stochastic>(call, inputs);
  };
}

}  // namespace samestate

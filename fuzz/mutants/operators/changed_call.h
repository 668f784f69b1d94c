#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "fuzz/mutants/mutant.h"

/// Mutants of operators: a correct kernel with a change of its inputs before it, or a change of its outputs
/// after it.
namespace samestate::mutants {

/// A call of an operator whose inputs are copies that may be changed; its outputs are the caller's. Throws
/// Error for names that the call lacks.
class ChangedCall {
 public:
  explicit ChangedCall(const OperatorArguments& original);
  [[nodiscard]] std::span<float> input(std::string_view name);
  [[nodiscard]] std::span<float> output(std::string_view name) const;
  [[nodiscard]] std::int64_t at(std::string_view parameter) const { return call.parameter(parameter); }
  void set(std::string_view parameter, std::int64_t value);
  /// The last extent of an input.
  [[nodiscard]] std::int64_t width(std::string_view name) const { return call.input(name).shape.back(); }
  void fill(std::string_view name, float value);
  /// Sets x <- f(x) for every element of an input.
  template <class Function>
  void each(std::string_view name, Function&& f) {
    for (float& x : input(name)) x = f(x);
  }

  OperatorArguments call;

 private:
  std::deque<std::vector<float>> copies_;
};

/// Calls f(row) for consecutive groups of `width` elements.
template <class Function>
void each_row(std::span<float> x, std::int64_t width, Function&& f) {
  const auto step = static_cast<std::size_t>(width);
  for (std::size_t i = 0; step > 0 && i + step <= x.size(); i += step) f(x.subspan(i, step));
}

/// Block i of each row, which has `count` blocks of `width`, becomes block from(i).
void permute(std::span<float> x, std::int64_t count, std::int64_t width,
             const std::function<std::int64_t(std::int64_t)>& from);
/// Rotates so that element `by` becomes the first; does nothing if there are no more than `by`.
void rotate(std::span<float> x, std::int64_t by);
/// From the sequences of an input of `call`, [B, rows, width], keeps only the last rows, those of this call's
/// tokens: what a cache held is lost.
void last_tokens(ChangedCall& call, NamedTensor<const float>& tensor);
[[nodiscard]] float root_of(std::int64_t n);
[[nodiscard]] float sigmoid(float x);

/// The function that is evaluated instead of `right`.
using CallFault =
    std::function<Outcome(const OperatorKernel& right, ChangedCall& call, const Contract& contract)>;
using Change = std::function<void(ChangedCall&)>;

[[nodiscard]] CallFault misread(Change before);
[[nodiscard]] CallFault miswritten(Change after);
[[nodiscard]] CallFault changed(Change before, Change after);
/// Calls another kernel on the same tensors.
[[nodiscard]] CallFault mistaken_for(std::string_view kernel);

// Changes that many kernels share.
[[nodiscard]] Change filled(std::string_view input, float value);
[[nodiscard]] Change mapped(std::string_view input, float (*f)(float));
/// Multiplies an output by f(call).
[[nodiscard]] Change scaled(std::string_view output, float (*f)(const ChangedCall&));
[[nodiscard]] Change fixed(std::string_view parameter, std::int64_t value);
[[nodiscard]] Change exchanged(std::string_view input, std::string_view other);
/// Reverses every row of an input.
[[nodiscard]] Change reversed(std::string_view input);
/// Shifts the tokens of every sequence of an input, [B, T, ...], by one: token t gets the values of t + 1.
[[nodiscard]] Change next_token(std::string_view input);
/// Shifts the rows of tables by position by one: token t gets the values of t - 1.
[[nodiscard]] Change token_before(std::initializer_list<std::string_view> inputs);

/// Numbers experts or branches backwards for the correct kernel, which resolves ties downwards. The first
/// extent of `by_row`, and the last `columns` of the rows of `by_column` and of `outputs`, count experts.
struct Ties {
  std::vector<std::string_view> by_row, by_column, outputs;
  std::int64_t experts = 0;
  std::int64_t before = 0;  ///< columns of an output before those of the experts
};
[[nodiscard]] CallFault ties_upwards(std::function<Ties(const ChangedCall&)> of);

/// A row of the table of a kernel's faults.
struct OperatorFault {
  const char* bug;
  const char* fault;
  const char* summary;
  CallFault run;
};

/// The correct operator of that name. Throws Error if no row of operator_kernels() has it.
[[nodiscard]] const OperatorKernel& right_operator(std::string_view name);
/// The mutant with `run` instead of the function of `right`, under the mutant's names.
[[nodiscard]] Mutant operator_mutant(const OperatorKernel& right, const char* bug, const char* fault,
                                     const char* summary, decltype(OperatorKernel::run) run);
void add_faults(std::vector<Mutant>& out, std::string_view kernel, const std::vector<OperatorFault>& faults);

// One list per file.
[[nodiscard]] std::vector<Mutant> activation_gates_mutants();
[[nodiscard]] std::vector<Mutant> channel_gate_mutants();
[[nodiscard]] std::vector<Mutant> dendritic_layer_mutants();
[[nodiscard]] std::vector<Mutant> dendritic_mutants();
[[nodiscard]] std::vector<Mutant> dendritic_precision_mutants();
[[nodiscard]] std::vector<Mutant> gated_delta_net_mutants();
[[nodiscard]] std::vector<Mutant> gated_delta_net_precision_mutants();
[[nodiscard]] std::vector<Mutant> gated_delta_step_mutants();
[[nodiscard]] std::vector<Mutant> operator_gradient_mutants();
[[nodiscard]] std::vector<Mutant> operator_interface_mutants();
[[nodiscard]] std::vector<Mutant> packed_mutants();
[[nodiscard]] std::vector<Mutant> latent_attention_mutants();
[[nodiscard]] std::vector<Mutant> linear_attention_mutants();
[[nodiscard]] std::vector<Mutant> mamba_mutants();
[[nodiscard]] std::vector<Mutant> mixture_of_experts_mutants();
[[nodiscard]] std::vector<Mutant> norms_mutants();
[[nodiscard]] std::vector<Mutant> retnet_mutants();
[[nodiscard]] std::vector<Mutant> rotary_embedding_mutants();
[[nodiscard]] std::vector<Mutant> short_convolution_mutants();
[[nodiscard]] std::vector<Mutant> softmax_attention_mutants();
[[nodiscard]] std::vector<Mutant> state_space_mutants();
[[nodiscard]] std::vector<Mutant> test_time_training_mutants();
[[nodiscard]] std::vector<Mutant> tf32_mutants();

}  // namespace samestate::mutants

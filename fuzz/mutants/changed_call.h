#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <vector>

#include "fuzz/mutants/rows.h"
#include "reference/error.h"

namespace samestate::mutants {

/// A call of an operator whose inputs are copies that may be changed; its outputs are the caller's.
class ChangedCall {
 public:
  explicit ChangedCall(const OperatorArguments& original) : call(original) {
    for (NamedTensor<const float>& tensor : call.inputs) {
      copies_.emplace_back(tensor.data, tensor.data + size_of(tensor.shape));
      copies_.back().push_back(0.0F);  // a tensor of no elements still has an address
      tensor.data = copies_.back().data();
    }
  }
  [[nodiscard]] std::span<float> input(std::string_view name) {
    std::size_t i = 0;
    while (call.inputs[i].name != name) call.inputs.at(++i);
    return {copies_[i].data(), copies_[i].size() - 1};
  }
  [[nodiscard]] std::span<float> output(std::string_view name) const {
    const NamedTensor<float>& tensor = call.output(name);
    return {tensor.data, size_of(tensor.shape)};
  }
  [[nodiscard]] std::int64_t at(std::string_view parameter) const { return call.parameter(parameter); }
  void set(std::string_view parameter, std::int64_t value) {
    for (auto& [key, old] : call.parameters) {
      if (key == parameter) old = value;
    }
  }
  [[nodiscard]] std::int64_t width(std::string_view name) const { return call.input(name).shape.back(); }
  void fill(std::string_view name, float value) { std::ranges::fill(input(name), value); }

  OperatorArguments call;

 private:
  static std::size_t size_of(const std::vector<std::int64_t>& shape) {
    std::int64_t size = 1;
    for (const std::int64_t extent : shape) size *= extent;
    return static_cast<std::size_t>(size);
  }
  std::deque<std::vector<float>> copies_;
};

/// Calls f(row) for consecutive groups of `width` elements.
template <class Function>
void each_row(std::span<float> x, std::int64_t width, Function&& f) {
  const auto step = static_cast<std::size_t>(width);
  for (std::size_t i = 0; step > 0 && i + step <= x.size(); i += step) f(x.subspan(i, step));
}

/// A name as template argument.
template <std::size_t N>
struct Name {
  constexpr Name(const char (&from)[N]) { std::copy_n(from, N, text); }  // NOLINT: converts on purpose
  char text[N] = {};
};

[[nodiscard]] inline const OperatorKernel& right_operator(std::string_view name) {
  static const KernelTable table({}, operator_kernels());
  for (const OperatorKernel& row : table.operator_rows()) {
    if (row.name == name) return row;
  }
  throw Error("no kernel " + std::string(name));
}

inline constexpr auto kNothing = [](ChangedCall&) {};

/// The right kernel `name` between a change of what it reads and a change of what it wrote.
template <Name name, auto before, auto after>
Outcome run_changed(const OperatorArguments& arguments, const Contract& contract) {
  static const OperatorKernel& right = right_operator(name.text);
  ChangedCall changed(arguments);
  before(changed);
  const Outcome outcome = right.run(changed.call, contract);
  after(changed);
  return outcome;
}

/// `run` in place of the kernel `name`.
inline void add_operator_row(std::vector<Mutant>& out, std::string_view name,
                             Outcome (*run)(const OperatorArguments&, const Contract&), const char* bug,
                             const char* fault, const char* summary) {
  OperatorKernel row = right_operator(name);
  Mutant m;
  m.bug = bug;
  m.fault = fault;
  m.system = row.system;
  m.form = row.form;
  m.summary = summary;
  m.name = m.fault + "." + m.system + "." + m.form;
  m.smoke = true;
  row.name = "mutant." + m.name;
  row.run = run;
  m.operators = {std::move(row)};
  out.push_back(std::move(m));
}

template <Name name, auto before, auto after = kNothing>
void add_operator(std::vector<Mutant>& out, const char* bug, const char* fault, const char* summary) {
  add_operator_row(out, name.text, run_changed<name, before, after>, bug, fault, summary);
}

/// A fault in what the kernel wrote.
template <Name name, auto after>
void add_output_fault(std::vector<Mutant>& out, const char* bug, const char* fault, const char* summary) {
  add_operator<name, kNothing, after>(out, bug, fault, summary);
}

[[nodiscard]] std::vector<Mutant> norm_and_gate_mutants();
[[nodiscard]] std::vector<Mutant> layer_mutants();
[[nodiscard]] std::vector<Mutant> dendritic_mutants();

}  // namespace samestate::mutants

#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/operator_plan.h"
#include "harness/run/operator_run.h"
#include "harness/run/runner.h"
#include "reference/error.h"

/// Kernels of operators with a fault put into them: the right kernel, called with damaged arguments or its
/// outputs damaged afterwards. The edge cases of the gate must kill each.
namespace samestate::planted {

inline const OperatorKernel& operator_kernel(std::string_view name) {
  for (const OperatorKernel& row : operator_kernels()) {
    if (row.name == name) return row;
  }
  throw Error("no kernel " + std::string(name));
}

/// A call whose inputs are copies that may be changed; the outputs are the original's.
class Damaged {
 public:
  explicit Damaged(const OperatorArguments& original) : call(original) {
    for (NamedTensor<const float>& tensor : call.inputs) {
      copies_.emplace_back(tensor.data, tensor.data + size_of(tensor.shape));
      copies_.back().resize(copies_.back().size() + 1);  // no elements are not no data
      tensor.data = copies_.back().data();
    }
  }
  /// The elements of an input.
  std::span<float> input(std::string_view name) {
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      if (call.inputs[i].name == name) return {copies_[i].data(), copies_[i].size() - 1};
    }
    throw Error("no input " + std::string(name));
  }
  std::span<float> output(std::string_view name) {
    const NamedTensor<float>& tensor = call.output(name);
    return {tensor.data, size_of(tensor.shape)};
  }
  std::int64_t width(std::string_view name) const { return call.input(name).shape.back(); }
  void set(std::string_view parameter, std::int64_t value) {
    for (auto& [key, old] : call.parameters) {
      if (key == parameter) old = value;
    }
  }
  /// x <- f(x) for every element of an input.
  template <class Function>
  void each(std::string_view name, Function&& f) {
    for (float& x : input(name)) x = f(x);
  }
  void fill(std::string_view name, float value) {
    each(name, [value](float) { return value; });
  }
  /// Every group of `size` consecutive elements of an input, as a span.
  template <class Function>
  void groups(std::string_view name, std::int64_t size, Function&& f) {
    const std::span<float> all = input(name);
    if (size < 1) return;
    const auto step = static_cast<std::size_t>(size);
    for (std::size_t i = 0; i + step <= all.size(); i += step) f(all.subspan(i, step));
  }

  OperatorArguments call;

 private:
  static std::size_t size_of(const std::vector<std::int64_t>& shape) {
    std::int64_t size = 1;
    for (const std::int64_t extent : shape) size *= extent;
    return static_cast<std::size_t>(size);
  }
  std::deque<std::vector<float>> copies_;
};

struct OperatorFault {
  const char* name;
  const char* kernel;
  std::function<Outcome(const OperatorKernel& right, Damaged& call, const Contract& contract)> run;
};

/// A fault in what the kernel reads.
inline OperatorFault misread(const char* name, const char* kernel, std::function<void(Damaged&)> damage) {
  return {name, kernel, [damage](const OperatorKernel& right, Damaged& call, const Contract& contract) {
            damage(call);
            return right.run(call.call, contract);
          }};
}

/// A fault in what the kernel returns.
inline OperatorFault miswritten(const char* name, const char* kernel, std::function<void(Damaged&)> damage) {
  return {name, kernel, [damage](const OperatorKernel& right, Damaged& call, const Contract& contract) {
            const Outcome outcome = right.run(call.call, contract);
            damage(call);
            return outcome;
          }};
}

/// The wrong kernel, on the same tensors.
inline OperatorFault mistaken_for(const char* name, const char* kernel, const char* other) {
  return {name, kernel, [other](const OperatorKernel&, Damaged& call, const Contract& contract) {
            return operator_kernel(other).run(call.call, contract);
          }};
}

/// The fault of the row being judged; a row's function can hold no state.
inline const OperatorFault*& current_fault() {
  static const OperatorFault* fault = nullptr;
  return fault;
}

/// The first edge case that `kernel` fails, with its ratio; empty where it fails none.
inline std::string first_failure(const OperatorKernel& kernel) {
  std::vector<Case> cases;
  plan_operator_edges(kernel, false, cases);
  for (const Case& c : cases) {
    const Judgement j = judge_operator_case(c, kernel, 1);
    if (j.verdict == Verdict::fail) return format_case(c) + " ratio " + std::to_string(j.ratio);
  }
  return {};
}

/// The edge case that kills the fault; empty where it survives.
inline std::string killed_by(const OperatorFault& fault) {
  current_fault() = &fault;
  OperatorKernel row = operator_kernel(fault.kernel);
  row.run = [](const OperatorArguments& call, const Contract& contract) {
    Damaged damaged(call);
    return current_fault()->run(operator_kernel(current_fault()->kernel), damaged, contract);
  };
  return first_failure(row);
}

/// Every fault dies, and the kernels they were made of live.
inline void expect_killed(const std::vector<OperatorFault>& faults) {
  std::string before;
  for (const OperatorFault& fault : faults) {
    if (before != fault.kernel) {
      EXPECT_EQ(first_failure(operator_kernel(fault.kernel)), "");
    }
    before = fault.kernel;
    const std::string line = killed_by(fault);
    EXPECT_NE(line, "") << fault.kernel << ", " << fault.name << ": survives";
    testing::Test::RecordProperty(std::string(fault.kernel) + ": " + fault.name, line);
  }
}

}  // namespace samestate::planted

#include "fuzz/mutants/operators/changed_call.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "reference/error.h"

namespace samestate::mutants {
namespace {

std::size_t size_of(const std::vector<std::int64_t>& shape) {
  std::int64_t size = 1;
  for (const std::int64_t extent : shape) size *= extent;
  return static_cast<std::size_t>(size);
}

}  // namespace

ChangedCall::ChangedCall(const OperatorArguments& original) : call(original) {
  for (NamedTensor<const float>& tensor : call.inputs) {
    copies_.emplace_back(tensor.data, tensor.data + size_of(tensor.shape));
    copies_.back().push_back(0.0F);  // a tensor of no elements still has an address
    tensor.data = copies_.back().data();
  }
}

std::span<float> ChangedCall::input(std::string_view name) {
  const auto place = static_cast<std::size_t>(&call.input(name) - call.inputs.data());
  return {copies_[place].data(), copies_[place].size() - 1};
}

std::span<float> ChangedCall::output(std::string_view name) const {
  const NamedTensor<float>& tensor = call.output(name);
  return {tensor.data, size_of(tensor.shape)};
}

void ChangedCall::set(std::string_view parameter, std::int64_t value) {
  (void)at(parameter);
  for (auto& [key, old] : call.parameters) {
    if (key == parameter) old = value;
  }
}

void ChangedCall::fill(std::string_view name, float value) { std::ranges::fill(input(name), value); }

void permute(std::span<float> x, std::int64_t count, std::int64_t width,
             const std::function<std::int64_t(std::int64_t)>& from) {
  const std::vector<float> old(x.begin(), x.end());
  for (std::int64_t i = 0; i < std::ssize(x); ++i) {
    const std::int64_t block = i / width % count;
    x[static_cast<std::size_t>(i)] = old[static_cast<std::size_t>(i + (from(block) - block) * width)];
  }
}

void rotate(std::span<float> x, std::int64_t by) {
  if (std::ssize(x) > by) std::rotate(x.begin(), x.begin() + by, x.end());
}

void last_tokens(ChangedCall& call, NamedTensor<const float>& tensor) {
  const std::span<float> x = call.input(tensor.name);
  const std::int64_t lost = (tensor.shape[1] - call.call.tokens) * tensor.shape[2];
  const std::int64_t kept = call.call.tokens * tensor.shape[2];
  for (std::int64_t b = 0; b < tensor.shape[0]; ++b)
    std::copy_n(x.begin() + b * (lost + kept) + lost, kept, x.begin() + b * kept);
  tensor.shape[1] = call.call.tokens;
}

float root_of(std::int64_t n) { return std::sqrt(static_cast<float>(n)); }
float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

CallFault misread(Change before) {
  return [before](const OperatorKernel& right, ChangedCall& call, const Contract& contract) {
    before(call);
    return right.run(call.call, contract);
  };
}

CallFault miswritten(Change after) {
  return [after](const OperatorKernel& right, ChangedCall& call, const Contract& contract) {
    const Outcome outcome = right.run(call.call, contract);
    after(call);
    return outcome;
  };
}

CallFault changed(Change before, Change after) {
  return [before, then = miswritten(std::move(after))](const OperatorKernel& right, ChangedCall& call,
                                                       const Contract& contract) {
    before(call);
    return then(right, call, contract);
  };
}

CallFault mistaken_for(std::string_view kernel) {
  return
      [&other = right_operator(kernel)](const OperatorKernel&, ChangedCall& call, const Contract& contract) {
        return other.run(call.call, contract);
      };
}

Change filled(std::string_view input, float value) {
  return [=](ChangedCall& c) { c.fill(input, value); };
}
Change mapped(std::string_view input, float (*f)(float)) {
  return [=](ChangedCall& c) { c.each(input, f); };
}
Change scaled(std::string_view output, float (*f)(const ChangedCall&)) {
  return [=](ChangedCall& c) {
    for (float& x : c.output(output)) x *= f(c);
  };
}
Change fixed(std::string_view parameter, std::int64_t value) {
  return [=](ChangedCall& c) { c.set(parameter, value); };
}
Change exchanged(std::string_view input, std::string_view other) {
  return [=](ChangedCall& c) { std::ranges::swap_ranges(c.input(input), c.input(other)); };
}
Change reversed(std::string_view input) {
  return [=](ChangedCall& c) {
    each_row(c.input(input), c.width(input), [](std::span<float> row) { std::ranges::reverse(row); });
  };
}
Change next_token(std::string_view input) {
  return [=](ChangedCall& c) {
    const NamedTensor<const float>& tensor = c.call.input(input);
    const auto token = static_cast<std::int64_t>(size_of({tensor.shape.begin() + 2, tensor.shape.end()}));
    each_row(c.input(input), token * tensor.extent(1), [=](std::span<float> x) { rotate(x, token); });
  };
}
Change token_before(std::initializer_list<std::string_view> inputs) {
  return [names = std::vector(inputs)](ChangedCall& c) {
    for (const std::string_view name : names) {
      const std::span<float> x = c.input(name);
      if (std::ssize(x) > c.width(name)) std::rotate(x.begin(), x.end() - c.width(name), x.end());
    }
  };
}

CallFault ties_upwards(std::function<Ties(const ChangedCall&)> of) {
  return [of](const OperatorKernel& right, ChangedCall& c, const Contract& contract) {
    const Ties ties = of(c);
    const std::int64_t n = ties.experts;
    const auto backwards = [n](std::span<float> x) {
      if (n < 2) return;
      permute(x, n, std::ssize(x) / n, [n](std::int64_t i) { return n - 1 - i; });
    };
    for (const std::string_view name : ties.by_row) backwards(c.input(name));
    for (const std::string_view name : ties.by_column) each_row(c.input(name), n, backwards);
    const Outcome outcome = right.run(c.call, contract);
    for (const std::string_view name : ties.outputs) {
      each_row(c.output(name), ties.before + n,
               [&](std::span<float> row) { backwards(row.subspan(static_cast<std::size_t>(ties.before))); });
    }
    return outcome;
  };
}

const OperatorKernel& right_operator(std::string_view name) {
  for (const OperatorKernel& row : operator_kernels()) {
    if (row.name == name) return row;
  }
  throw Error("no kernel " + std::string(name) + ": `samestate list kernels` shows them");
}

Mutant operator_mutant(const OperatorKernel& right, const char* bug, const char* fault, const char* summary,
                       decltype(OperatorKernel::run) run) {
  Mutant m;
  m.bug = bug;
  m.fault = fault;
  m.system = right.system;
  m.form = right.form;
  m.summary = summary;
  m.name = m.fault + "." + m.system + "." + m.form;
  m.operators = {right};
  m.operators.front().name = "mutant." + m.name;
  m.operators.front().run = std::move(run);
  m.operators.front().strided = false;  // a changed call has dense copies
  m.operators.front().packed = false;   // its faults are those of dense calls
  return m;
}

void add_faults(std::vector<Mutant>& out, std::string_view kernel, const std::vector<OperatorFault>& faults) {
  const OperatorKernel& right = right_operator(kernel);
  for (const OperatorFault& fault : faults) {
    out.push_back(operator_mutant(
        right, fault.bug, fault.fault, fault.summary,
        [&right, run = fault.run](const OperatorArguments& original, const Contract& contract) {
          ChangedCall call(original);
          return run(right, call, contract);
        }));
  }
}

}  // namespace samestate::mutants

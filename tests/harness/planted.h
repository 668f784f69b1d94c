#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/run/run_case.h"

/// Kernels with a fault put into them: rows that call a CPU kernel of this build and damage what goes in or
/// what comes out.
namespace samestate::faulty {

/// A stand-in for a kernel: `base` is the CPU kernel, to be called with arguments of its own.
using Fault = std::function<Outcome(const Kernel& base, Arguments, const Contract&)>;

inline Outcome undamaged(const Kernel& base, Arguments a, const Contract& contract) {
  return base.run(a, contract);
}

/// A fault that acts on the arguments after a right run.
template <class Act>
Fault after(Act act) {
  return [act](const Kernel& base, const Arguments& a, const Contract& c) {
    const Outcome outcome = base.run(a, c);
    act(a);
    return outcome;
  };
}

/// A fault that changes the arguments of a right run.
template <class Change>
Fault before(Change change) {
  return [change](const Kernel& base, Arguments a, const Contract& c) {
    change(a);
    return base.run(a, c);
  };
}

/// Returns planted.gated_delta_rule.chunked and planted.gated_delta_rule.recurrent together with the CPU
/// kernels.
inline KernelTable planted_table(const Fault& chunked, const Fault& recurrent = undamaged) {
  KernelTable table(kernels());
  const auto planted = [&](const std::string& form, const Fault& fault) {
    const Kernel& base = table.named("cpu.gated_delta_rule." + form);
    Kernel row = base;
    row.name = "planted.gated_delta_rule." + form;
    row.contracts.emplace_back(kAnyContract);  // as the base, whose calls these are
    row.run = [base, fault](const Arguments& a, const Contract& c) { return fault(base, a, c); };
    return row;
  };
  const std::array rows{planted("chunked", chunked), planted("recurrent", recurrent)};
  table.add(rows);
  return table;
}

/// Calls visit(element, coordinates) for each element of a view of rank 4 or 3.
template <class T, std::size_t Rank, class Visit>
void each(const View<T, Rank>& view, Visit&& visit) {
  std::array<std::int64_t, Rank> at{};
  for (std::int64_t i = 0; i < view.size(); ++i) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < Rank; ++d) offset += at[d] * view.stride[d];
    visit(view.data[offset], at);
    for (std::size_t d = Rank; d-- > 0 && ++at[d] == view.shape[d];) at[d] = 0;
  }
}

/// A dense copy with memory of its own, each element changed on the way.
template <std::size_t Rank>
class Copy {
 public:
  using At = std::array<std::int64_t, Rank>;
  template <class Change>
  Copy(const View<const float, Rank>& view, Change&& change) : shape_(view.shape), present_(view.present()) {
    if (!present_) return;
    values_.reserve(static_cast<std::size_t>(view.size()) + 1);
    each(view, [&](const float& x, const At& at) { values_.push_back(change(x, at)); });
    values_.resize(values_.size() + 1);  // a view of no elements still is not absent
  }
  explicit Copy(const View<const float, Rank>& view) : Copy(view, [](float x, const At&) { return x; }) {}
  [[nodiscard]] View<float, Rank> view() { return row_major(present_ ? values_.data() : nullptr, shape_); }

 private:
  std::vector<float> values_;
  std::array<std::int64_t, Rank> shape_;
  bool present_;
};

/// 3 is added to the elements of o for which test(arguments, coordinates) is true.
template <class Test>
Fault adds_where(Test test) {
  return after([test](const Arguments& a) {
    each(a.o, [&](float& x, const auto& at) {
      if (test(a, at)) x += 3.0F;
    });
  });
}

/// Returns true if one of the lines has the words.
inline bool says(const std::vector<std::string>& lines, const std::string& words) {
  return std::ranges::any_of(lines, [&](const std::string& line) { return line.find(words) != line.npos; });
}

}  // namespace samestate::faulty

#include "fuzz/operator_plan.h"

#include <algorithm>
#include <array>

#include "harness/cases/counter.h"
#include "harness/cases/operator_case.h"
#include "oracles/systems/operator.h"

namespace samestate {
namespace {

/// Tokens times elements of weights and of one token's data, roughly the multiplications of a case; the
/// running error costs about thirty times a multiplication.
constexpr double kLargestWork = 4e5;

double work_of(const Case& c, const Operator& op) {
  const Signature signature = op.signature(call_of(c, op.forms.front().name));
  double weights = 0.0;
  double data = 0.0;
  for (const TensorSpec& spec : signature.inputs) {
    (spec.axis == Axis::whole ? weights : data) += static_cast<double>(spec.size());
  }
  const auto tokens = static_cast<double>(std::max<std::int64_t>(c.T, 1));
  return static_cast<double>(c.B) * (tokens * weights + tokens * data);
}

/// Whether the sizes fit together.
bool possible(const Case& c) {
  try {
    check_operator_case(c);
    return true;
  } catch (const Error&) {
    return false;
  }
}

class OperatorPlan {
 public:
  OperatorPlan(const OperatorKernel& kernel, bool is_default, std::vector<Case>& out)
      : kernel_(kernel), op_(*find_operator(kernel.system)), out_(out) {
    base_.system = kernel.system;
    base_.form = kernel.form;
    base_.kernel = is_default ? "" : kernel.name;
    base_.contract = kernel.contracts.front();
    base_.chunk = chunked() ? 8 : Case{}.chunk;
    base_.T = 21;
    for (const Parameter& p : op_.parameters) base_.parameters.emplace(p.name, p.standard);
  }

  void edges() {
    for (const std::string& contract : kernel_.contracts) {
      Case c = base_;
      c.contract = contract;
      lengths(c);
      sizes(c);
      regimes(c);
      calls(c);
      c.B = 3;
      put(c);
    }
  }

  void seeded(std::uint64_t seed, std::int64_t index) {
    const Counter counter(seed, "plan/" + kernel_.name);
    std::int64_t draw = 0;
    const auto below = [&](std::int64_t n) { return counter.below({index, draw++, 0, 0}, n); };
    for (int attempt = 0; attempt < 50; ++attempt) {
      Case c = base_;
      c.contract = kernel_.contracts[static_cast<std::size_t>(below(std::ssize(kernel_.contracts)))];
      c.regime = operator_regimes()[static_cast<std::size_t>(below(std::ssize(operator_regimes())))].name;
      c.T = 1 + below(60);
      c.B = below(4) == 0 ? 2 : 1;
      for (const Parameter& p : op_.parameters) {
        if (below(2) == 0) continue;
        const std::int64_t most = std::min(p.most, 2 * p.standard + 1);
        c.parameters[std::string(p.name)] = p.least + below(most - p.least + 1);
      }
      if (chunked()) c.chunk = 1 + below(20);
      if (op_.streams && below(3) == 0) {
        c.form = "decode";
        c.T = std::min<std::int64_t>(c.T, 24);
        c.prefill = below(c.T + 1);
      }
      c.seed = (seed << 32) ^ static_cast<std::uint64_t>(index + 1);
      if (!possible(c) || work_of(c, op_) > kLargestWork) continue;
      put(c);
      return;
    }
  }

 private:
  [[nodiscard]] bool chunked() const {
    const OperatorForm* form = op_.form(kernel_.form);
    return form != nullptr && form->chunked;
  }
  /// Only cases that are cases: a size at its least may not fit the others.
  void put(const Case& c) {
    if (possible(c)) out_.push_back(c);
  }

  void lengths(const Case& base) {
    for (std::int64_t T : {0, 1, 2, 7, 8, 9, 33}) {
      Case c = base;
      c.T = T;
      c.seed = static_cast<std::uint64_t>(T);
      put(c);
    }
    if (!chunked()) return;
    for (std::int64_t chunk : {1, 2, 5, 21, 64}) {
      Case c = base;
      c.chunk = chunk;
      put(c);
    }
  }

  void sizes(const Case& base) {
    for (const Parameter& p : op_.parameters) {
      for (std::int64_t value : {p.least, p.standard + 1, 2 * p.standard}) {
        if (value > p.most) continue;
        Case c = base;
        c.parameters[std::string(p.name)] = value;
        put(c);
      }
    }
  }

  void regimes(const Case& base) {
    for (const OperatorRegime& regime : operator_regimes()) {
      Case c = base;
      c.regime = regime.name;
      c.seed = 7;
      put(c);
    }
  }

  void calls(const Case& base) {
    if (!op_.streams) return;
    for (std::int64_t prefill : {0, 1, 2, 13, 21}) {
      Case c = base;
      c.form = "decode";
      c.prefill = prefill;
      put(c);
    }
  }

  const OperatorKernel& kernel_;
  const Operator& op_;
  std::vector<Case>& out_;
  Case base_;
};

}  // namespace

void plan_operator_edges(const OperatorKernel& kernel, bool is_default, std::vector<Case>& out) {
  OperatorPlan(kernel, is_default, out).edges();
}

void plan_operator_seeded(const OperatorKernel& kernel, bool is_default, std::uint64_t seed,
                          std::int64_t index, std::vector<Case>& out) {
  OperatorPlan(kernel, is_default, out).seeded(seed, index);
}

}  // namespace samestate

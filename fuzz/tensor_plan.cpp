#include "fuzz/tensor_plan.h"

#include <algorithm>
#include <array>

#include "fuzz/shapes.h"
#include "harness/cases/counter.h"

namespace samestate {
namespace {

class TensorPlan {
 public:
  TensorPlan(const KernelRow& kernel, std::vector<Case>& out)
      : kernel_(kernel), system_(*kernel.system), out_(out) {
    base_.system = system_.name;
    base_.form = kernel.form;
    base_.contract = kernel.contracts.front();
    base_.chunk = chunked() ? 8 : Case{}.chunk;
    base_.T = 21;
    for (const Parameter& p : system_.sizes) base_.parameters.emplace(p.name, p.standard);
  }

  void edges() {
    for (const std::string& contract : kernel_.contracts) {
      Case c = base_;
      c.contract = contract;
      lengths(c);
      sizes(c);
      regimes(c);
      calls(c);
      layouts(c);
      laws(c);
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
      c.regime = system_.regimes[static_cast<std::size_t>(below(std::ssize(system_.regimes)))]->name;
      c.T = 1 + below(60);
      c.B = below(4) == 0 ? 2 : 1;
      for (const Parameter& p : system_.sizes) {
        if (below(2) == 0) continue;
        const std::int64_t most = std::min(p.most, 2 * p.standard + 1);
        c.parameters[std::string(p.name)] = p.least + below(most - p.least + 1);
      }
      if (chunked()) c.chunk = 1 + below(20);
      if (system_.form("decode") != nullptr && below(3) == 0) {
        c.form = "decode";
        c.T = std::min<std::int64_t>(c.T, 24);
        c.prefill = below(c.T + 1);
      }
      c.seed = (seed << 32) ^ static_cast<std::uint64_t>(index + 1);
      if (!possible(c) || shapes::tensor_work(c) > shapes::kLargestTensorWork) continue;
      put(c);
      if (index % 2 == 0) put(changed(c, Counter(seed, "plan/changed/" + kernel_.name), index));
      return;
    }
  }

 private:
  /// A drawn case once more: under a law of its system, or with tensors that are not dense. Its draws are of
  /// a counter of their own, so that the other cases of a seed stay what they were.
  [[nodiscard]] Case changed(Case c, const Counter& counter, std::int64_t index) const {
    const auto below = [&](std::int64_t draw, std::int64_t n) {
      return counter.below({index, draw, 0, 0}, n);
    };
    if (kernel_.strided && below(0, 3) == 0) {
      c.layout = below(1, 3) == 0 ? "far" : "padded";
      return c;
    }
    c.law = system_.laws[static_cast<std::size_t>(below(2, std::ssize(system_.laws)))].name;
    c.form = kernel_.form;
    // The bounds of two runs in 16 bits say little of a layer.
    if (below(3, 4) > 0) c.contract = kernel_.contracts.front();
    c.prefill = 0;
    c.B = 2;
    c.T = std::clamp<std::int64_t>(c.T, 2, 24);
    return c;
  }

  [[nodiscard]] bool chunked() const {
    const CaseForm* form = system_.form(kernel_.form);
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
    for (const Parameter& p : system_.sizes) {
      for (std::int64_t value : {p.least, p.standard + 1, 2 * p.standard}) {
        if (value > p.most) continue;
        Case c = base;
        c.parameters[std::string(p.name)] = value;
        put(c);
      }
    }
  }

  void regimes(const Case& base) {
    for (const Regime* regime : system_.regimes) {
      Case c = base;
      c.regime = regime->name;
      c.seed = 7;
      put(c);
    }
  }

  void calls(const Case& base) {
    if (system_.form("decode") == nullptr) return;
    for (std::int64_t prefill : {0, 1, 2, 13, 21}) {
      Case c = base;
      c.form = "decode";
      c.prefill = prefill;
      put(c);
    }
  }

  /// Tensors that are not dense, of one and of several sequences, and calls that see a part of them.
  void layouts(const Case& base) {
    if (!kernel_.strided) return;
    for (const char* layout : {"padded", "far"}) {
      Case c = base;
      c.layout = layout;
      put(c);
      c.B = 2;
      if (system_.form("decode") != nullptr) c.form = "decode", c.prefill = 13;
      put(c);
    }
  }

  void laws(const Case& base) {
    for (const LawName& law : system_.laws) {
      Case c = base;
      c.law = law.name;
      c.B = 2;
      c.T = 13;
      put(c);
    }
  }

  const KernelRow& kernel_;
  const System& system_;
  std::vector<Case>& out_;
  Case base_;
};

}  // namespace

void plan_tensor_edges(const KernelRow& kernel, std::vector<Case>& out) { TensorPlan(kernel, out).edges(); }

void plan_tensor_seeded(const KernelRow& kernel, std::uint64_t seed, std::int64_t index,
                        std::vector<Case>& out) {
  TensorPlan(kernel, out).seeded(seed, index);
}

}  // namespace samestate

#include <algorithm>
#include <chrono>
#include <limits>
#include <stdexcept>
#include <thread>
#include <utility>

#include "fuzz/mutants/rows.h"
#include "fuzz/mutants/trial.h"

/// Subjects that compute nothing wrong but cheat, or break the process (HARNESS 1.7). The correct kernel is
/// the CPU's chunked one.
namespace samestate::mutants {
namespace {

using Run = Outcome (*)(const Arguments&, const Contract&);

Outcome correct(const Arguments& arguments, const Contract& contract) {
  static const KernelTable table(kernels());
  return table.named("cpu.gated_delta_rule.chunked").run(arguments, contract);
}

/// Calls visit(element) in row-major order.
template <class Visit>
void each(const View<float, 4>& view, Visit&& visit) {
  for (std::int64_t a = 0; a < view.shape[0]; ++a) {
    for (std::int64_t b = 0; b < view.shape[1]; ++b) {
      for (std::int64_t c = 0; c < view.shape[2]; ++c) {
        for (std::int64_t d = 0; d < view.shape[3]; ++d) visit(view(a, b, c, d));
      }
    }
  }
}

Outcome replays_last_result(const Arguments& arguments, const Contract& contract) {
  static thread_local std::vector<float> o, state;
  const bool known = std::ssize(o) == arguments.o.size() && std::ssize(state) == arguments.final_state.size();
  if (!known) {
    const Outcome outcome = correct(arguments, contract);
    o.clear();
    state.clear();
    each(arguments.o, [&](float x) { o.push_back(x); });
    each(arguments.final_state, [&](float x) { state.push_back(x); });
    return outcome;
  }
  std::size_t i = 0;
  each(arguments.o, [&](float& x) { x = o[i++]; });
  i = 0;
  each(arguments.final_state, [&](float& x) { x = state[i++]; });
  return {};
}

Outcome edits_its_inputs(const Arguments& arguments, const Contract& contract) {
  const Outcome outcome = correct(arguments, contract);
  if (arguments.q.size() > 0) *const_cast<float*>(arguments.q.data) = 0.0F;
  return outcome;
}

Outcome writes_nothing(const Arguments&, const Contract&) { return {}; }

Outcome writes_past_the_end(const Arguments& arguments, const Contract& contract) {
  const Outcome outcome = correct(arguments, contract);
  const View<float, 4>& S = arguments.final_state;
  if (S.size() > 0) (&S(S.shape[0] - 1, S.shape[1] - 1, S.shape[2] - 1, S.shape[3] - 1))[1] = 0.0F;
  return outcome;
}

Outcome writes_first_batch_only(const Arguments& arguments, const Contract& contract) {
  if (arguments.cu_seqlens.present() || arguments.q.shape[0] < 2) return correct(arguments, contract);
  Arguments first = arguments;
  const auto cut = [](auto& view) {
    if (view.present()) view = view.slice(0, 0, 1);
  };
  cut(first.q), cut(first.k), cut(first.v), cut(first.g), cut(first.beta), cut(first.initial_state);
  cut(first.o), cut(first.final_state);
  return correct(first, contract);
}

Outcome returns_nan(const Arguments& arguments, const Contract&) {
  const auto nan = [](float& x) { x = std::numeric_limits<float>::quiet_NaN(); };
  each(arguments.o, nan);
  each(arguments.final_state, nan);
  return {};
}

Outcome returns_zeros(const Arguments& arguments, const Contract&) {
  const auto zero = [](float& x) { x = 0.0F; };
  each(arguments.o, zero);
  each(arguments.final_state, zero);
  return {};
}

Outcome sleeps(const Arguments& arguments, const Contract& contract) {
  std::this_thread::sleep_for(std::chrono::duration<double>(1.1 * kCaseSeconds));
  return correct(arguments, contract);
}

Outcome crashes(const Arguments& arguments, const Contract& contract) {
  if (arguments.v.shape[3] > 64) throw std::runtime_error("an illegal memory access was encountered");
  return correct(arguments, contract);
}

struct Subject {
  const char* name;
  const char* summary;
  Run run;
};

constexpr Subject kSubjects[] = {
    {"replays_last_result", "returns the last call's result where the sizes are the same",
     replays_last_result},
    {"edits_its_inputs", "writes into q", edits_its_inputs},
    {"writes_nothing", "returns without writing", writes_nothing},
    {"writes_past_the_end", "writes one element after the final state", writes_past_the_end},
    {"writes_first_batch_only", "leaves all but the first row of a batch unwritten", writes_first_batch_only},
    {"returns_nan", "fills its outputs with NaN", returns_nan},
    {"returns_zeros", "fills its outputs with zeros", returns_zeros},
    {"sleeps", "does not return in time", sleeps},
    {"crashes", "throws where dv > 64", crashes},
};

}  // namespace

std::vector<Mutant> adversaries() {
  std::vector<Mutant> out;
  for (const Subject& subject : kSubjects) {
    Mutant m;
    m.bug = "H1.7";
    m.fault = subject.name;
    m.system = "gated_delta_rule";
    m.form = "chunked";
    m.summary = subject.summary;
    m.name = m.fault + "." + m.system + "." + m.form;
    m.rows = {{"mutant." + m.name, m.system, m.form, "cpu", {"fp32"}, subject.run},
              {"mutant." + m.fault + "." + m.system + ".recurrent",
               m.system,
               "recurrent",
               "cpu",
               {"fp32"},
               run_fault<Recurrent, cpu::GATED_DELTA_RULE>}};
    out.push_back(std::move(m));
  }
  return out;
}

}  // namespace samestate::mutants

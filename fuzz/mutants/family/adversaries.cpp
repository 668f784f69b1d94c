#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>

#include "fuzz/mutants/family/rows.h"

/// Subjects that compute correctly but cheat, or break the process (HARNESS 1.7). The correct kernel is the
/// CPU's chunked one.
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

Outcome changes_cu_seqlens(const Arguments& arguments, const Contract& contract) {
  const Outcome outcome = correct(arguments, contract);
  if (arguments.cu_seqlens.present()) --const_cast<std::int64_t&>(arguments.cu_seqlens(0));
  return outcome;
}

/// Like an accumulation into a buffer assumed to be zero, by an author who once saw NaN in it.
Outcome adds_to_what_was_there(const Arguments& arguments, const Contract& contract) {
  std::vector<float> before;
  each(arguments.o, [&](float x) { before.push_back(std::isnan(x) ? 0.0F : x); });
  const Outcome outcome = correct(arguments, contract);
  std::size_t i = 0;
  each(arguments.o, [&](float& x) { x += before[i++]; });
  return outcome;
}

/// For example a row's running maximum that starts from what the buffer holds.
Outcome keeps_the_larger(const Arguments& arguments, const Contract& contract) {
  std::vector<float> before;
  each(arguments.o, [&](float x) { before.push_back(x); });
  const Outcome outcome = correct(arguments, contract);
  std::size_t i = 0;
  each(arguments.o, [&](float& x) { x = std::fmax(x, before[i++]); });
  return outcome;
}

Outcome throws(const Arguments& arguments, const Contract& contract) {
  if (arguments.v.shape[3] > 64) throw std::runtime_error("an illegal memory access was encountered");
  return correct(arguments, contract);
}

Outcome dereferences_null(const Arguments&, const Contract&) {
  volatile float* volatile nowhere = nullptr;
  *nowhere = 0.0F;
  return {};
}

Outcome touches_a_guard_page(const Arguments& arguments, const Contract& contract) {
  void* const page = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *static_cast<volatile float*>(page) = arguments.scale;
  return correct(arguments, contract);
}

Outcome aborts(const Arguments&, const Contract&) { std::abort(); }

/// It exits with the code of success.
Outcome exits(const Arguments&, const Contract&) { std::exit(0); }

Outcome loops_forever(const Arguments&, const Contract&) {
  for (volatile unsigned i = 0;;) i = i + 1;
}

Outcome sleeps(const Arguments& arguments, const Contract& contract) {
  std::this_thread::sleep_for(std::chrono::hours(1));
  return correct(arguments, contract);
}

/// Like a launch on another stream than the caller's. The wait is longer than a case and its verdict take: by
/// then the buffers are gone, and what happens to the process is not judged.
Outcome returns_before_it_is_done(const Arguments& arguments, const Contract& contract) {
  std::thread([arguments, contract] {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    (void)correct(arguments, contract);
  }).detach();
  return {};
}

/// Reserving address space is enough to reach the limit, and if there is no limit, it does not use up the
/// machine's memory.
Outcome allocates_without_bound(const Arguments&, const Contract&) {
  constexpr std::size_t size = std::size_t{1} << 30;
  while (::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {
  }
  throw std::bad_alloc();
}

struct Subject {
  const char* name;
  const char* summary;
  Run run;
  bool hostile = false;
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
    {"changes_cu_seqlens", "writes into cu_seqlens", changes_cu_seqlens},
    {"adds_to_what_was_there", "adds to what o held before the call unless that is NaN",
     adds_to_what_was_there},
    {"keeps_the_larger", "fmax of the result and of what o held before the call", keeps_the_larger},
    {"throws", "throws where dv > 64", throws},
    {"dereferences_null", "writes through a null pointer", dereferences_null, true},
    {"touches_a_guard_page", "writes to a page without access", touches_a_guard_page, true},
    {"aborts", "calls abort", aborts, true},
    {"exits", "calls exit(0)", exits, true},
    {"loops_forever", "does not return, busy", loops_forever, true},
    {"sleeps", "does not return, idle", sleeps, true},
    {"returns_before_it_is_done", "a thread of its own writes the outputs after it has returned",
     returns_before_it_is_done, true},
    {"allocates_without_bound", "allocates until it gets nothing", allocates_without_bound, true},
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
    m.hostile = subject.hostile;
    m.name = m.fault + "." + m.system + "." + m.form;
    m.rows = {{"mutant." + m.name, m.system, m.form, "cpu", {"fp32"}, subject.run},
              kernel_of<Recurrent>(cpu::GATED_DELTA_RULE, "mutant." + m.fault, {"fp32"})};
    out.push_back(std::move(m));
  }
  return out;
}

}  // namespace samestate::mutants

#include "fuzz/mutants/likeness.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "harness/explain/explain.h"
#include "harness/run/run_case.h"

namespace samestate {
namespace {

using Values = std::vector<double>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kMost = 4;

Values values_of(const std::vector<CaseTensor>& outputs) {
  Values all;
  for (const CaseTensor& x : outputs) all.insert(all.end(), x.data.begin(), x.data.end());
  return all;
}

/// Returns the sum of squared differences; infinite if one value is not finite and the other differs from it.
double distance(const Values& a, const Values& b) {
  if (a.size() != b.size()) return kInfinity;
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    const double d = a[i] - b[i];
    if (!std::isfinite(d)) return kInfinity;
    sum += d * d;
  }
  return sum;
}

/// Returns the sum of squares of the finite values.
double size_of(const Values& x) {
  double sum = 0.0;
  for (const double v : x) sum += std::isfinite(v) ? v * v : 0.0;
  return sum;
}

/// Returns what a kernel computes from the run's inputs; empty if it does not take the case.
Values values_of(const Resolved& r, const Trace& trace, const KernelTable& table, const std::string& kernel,
                 const std::string& form) {
  Case own = r.c;
  own.kernel = kernel;
  if (!r.system->evaluates(r, form)) own.form = form;
  try {
    const Resolved mine(own);
    return values_of(mine.system->outputs(mine, trace.inputs, table.choose(mine), {mine.layout, 1}));
  } catch (const std::exception&) {
    return {};
  }
}

/// Returns the values of the kernel from which the mutant was made.
Values right_values(const Resolved& r, const Trace& trace, const Mutant& m) {
  const KernelTable right = m.rows.empty() ? KernelTable(call_kernels()) : KernelTable(unmutated_kernels());
  return values_of(r, trace, right, (m.rows.empty() ? "cpu." : "evaluator.") + m.system + "." + m.form,
                   m.form);
}

/// A row that promises a single contract is the twin of another row for that contract.
bool meant_for(const Mutant& m, const Case& c) {
  if (m.system != c.system || m.hostile || !m.equivalent.empty()) return false;
  if (m.rows.empty()) return true;
  const std::vector<std::string>& promised = m.rows.front().contracts;
  return promised.size() > 1 || promised.front() == c.contract;
}

/// Keeps the mutants of those faults that leave about as little unexplained as the best one does. Where states decay at
/// once, for example, many mistakes about them account for most of a difference, and one for all of it.
void keep_nearest(std::vector<std::pair<double, const Mutant*>>& alike, double size) {
  // In squares, as in harness/explain/explain_mistakes.cpp: a mistake that leaves three times as much of the difference
  // as another is not the cause. What two orders of the same fp32 sums leave does not tell faults apart.
  constexpr double kAsNear = 9.0, kOfRoundings = 1e-6;
  std::map<std::string_view, double> least;  // by fault, over its forms
  double best = kInfinity;
  for (const auto& [rest, m] : alike) {
    const auto [of, fresh] = least.try_emplace(m->fault, rest);
    of->second = std::min(of->second, rest);
    best = std::min(best, rest);
  }
  const double most = kAsNear * best + kOfRoundings * kOfRoundings * size;
  std::erase_if(alike, [&](const auto& one) { return least.at(one.second->fault) > most; });
}

}  // namespace

Likeness mutants_like(const Resolved& r, const Trace& trace, double seconds) {
  if (r.law != nullptr) {
    const std::optional<RunAlone> alone = wrong_run(r, trace);
    return alone ? mutants_like(alone->r, alone->trace, seconds) : Likeness{};
  }
  Likeness out;
  const Values actual = values_of(trace.outputs);
  if (actual.empty()) return out;
  const auto began = std::chrono::steady_clock::now();
  const auto late = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() > seconds;
  };
  std::vector<std::pair<double, const Mutant*>> alike;
  // Outputs of nothing but NaN are all alike; some faults leave zeros and others do not.
  if (std::none_of(actual.begin(), actual.end(), [](double x) { return std::isfinite(x); })) return out;
  std::map<std::pair<bool, std::string>, Values> right;  // by the mutant's original kernel, and by form
  constexpr double kUnexplained = 1.0 - kExplainedShare;
  for (const Mutant& m : all_mutants()) {
    if (!meant_for(m, r.c)) continue;
    ++out.all;
    if (late()) continue;
    ++out.tried;
    const auto [of, fresh] = right.try_emplace({m.rows.empty(), m.form});
    if (fresh) of->second = right_values(r, trace, m);
    const double whole = distance(actual, of->second);
    if (whole == 0.0) continue;
    const double scale = std::isfinite(whole) ? whole : size_of(actual);
    const Values faulty = values_of(r, trace, m.table(), m.kernel(), m.form);
    // A mutant that does nothing here, or less than the kernel's fault, explains no more than its right form
    // does.
    if (distance(faulty, of->second) < kExplainedShare * kExplainedShare * scale) continue;
    const double rest = distance(actual, faulty);
    if (rest <= kUnexplained * kUnexplained * scale) alike.emplace_back(rest, &m);
  }
  keep_nearest(alike, size_of(actual));
  // The same fault in another form gives the same values apart from roundings.
  const std::string_view form = trace.native;
  std::stable_sort(alike.begin(), alike.end(), [&](const auto& x, const auto& y) {
    return std::pair(x.second->form != form, x.first) < std::pair(y.second->form != form, y.first);
  });
  std::set<std::string_view> named;
  // It is enough to name bf16_state: bf16_state_in_bf16 is the same fault in a kernel that promises less.
  const auto is_named = [&](const Mutant& m) {
    return std::ranges::any_of(named, [&](std::string_view fault) {
      return m.fault == fault || m.fault.starts_with(std::string(fault) + "_in_");
    });
  };
  for (const auto& [rest, m] : alike) {
    if (out.mutants.size() == kMost || is_named(*m)) continue;
    named.insert(m->fault);
    out.mutants.push_back(m);
  }
  return out;
}

}  // namespace samestate

#include "fuzz/mutants/likeness.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "harness/explain/explain.h"
#include "harness/run/judge_batch.h"
#include "harness/run/operator_run.h"

namespace samestate {
namespace {

using Values = std::vector<double>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kMost = 4;

Values values_of(const Outputs& outputs) {
  Values all(outputs.o.begin(), outputs.o.end());
  all.insert(all.end(), outputs.final_state.begin(), outputs.final_state.end());
  return all;
}

Values values_of(const std::vector<Tensors<double>>& sequences) {
  Values all;
  for (const Tensors<double>& tensors : sequences) {
    for (const auto& [name, x] : tensors) all.insert(all.end(), x.data(), x.data() + x.size());
  }
  return all;
}

/// Sum of squared differences; infinite where one is no finite number and the other another value.
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

/// Sum of squares of what is finite.
double size_of(const Values& x) {
  double sum = 0.0;
  for (const double v : x) sum += std::isfinite(v) ? v * v : 0.0;
  return sum;
}

/// What a kernel makes of the run's inputs; nothing where it does not do the case.
Values values_of(const Case& c, const Trace& trace, const KernelTable& table, const std::string& kernel,
                 const std::string& form) {
  Case own = c;
  own.kernel = kernel;
  if (is_operator_case(c) && c.form != "decode") own.form = form;
  try {
    if (is_operator_case(c))
      return values_of(run_operator(own, trace.operator_inputs, table.operator_for(own), 1));
    return values_of(run_kernel(table.pair_for(own), trace.batch, path_of(own, trace.batch.shape.T),
                                contract_of(own), {layout_named(own.layout), 1}));
  } catch (const std::exception&) {
    return {};
  }
}

/// Of the kernel that the mutant was made of.
Values right_values(const Case& c, const Trace& trace, const Mutant& m) {
  if (is_operator_case(c)) {
    const KernelTable right({}, operator_kernels());
    return values_of(c, trace, right, "cpu." + m.system + "." + m.form, m.form);
  }
  return values_of(c, trace, KernelTable(unmutated_kernels()), "evaluator." + m.system + "." + m.form,
                   m.form);
}

/// A row that promises one contract alone is a twin of another's, for that contract.
bool meant_for(const Mutant& m, const Case& c) {
  if (m.system != c.system || m.hostile || !m.equivalent.empty()) return false;
  if (is_operator_case(c)) return true;
  const std::vector<std::string>& promised = m.rows.front().contracts;
  return promised.size() > 1 || promised.front() == c.contract;
}

}  // namespace

Likeness mutants_like(const Case& c, const Trace& trace, double seconds) {
  Likeness out;
  const Values actual = is_operator_case(c) ? values_of(trace.operator_outputs) : values_of(trace.outputs);
  if (actual.empty() || !c.law.empty()) return out;
  const auto began = std::chrono::steady_clock::now();
  const auto late = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() > seconds;
  };
  std::vector<std::pair<double, const Mutant*>> alike;
  std::optional<double> whole;
  for (const Mutant& m : all_mutants()) {
    if (!meant_for(m, c)) continue;
    ++out.all;
    if (late()) continue;
    ++out.tried;
    if (!whole) whole = distance(actual, right_values(c, trace, m));
    const double scale = std::isfinite(*whole) ? *whole : size_of(actual);
    const double rest = distance(actual, values_of(c, trace, m.table(), m.kernel(), m.form));
    const double unexplained = 1.0 - kExplainedShare;
    if (*whole > 0.0 && rest <= unexplained * unexplained * scale) alike.emplace_back(rest, &m);
  }
  // The same fault in another form gives the same values but for roundings.
  const std::string_view form = is_operator_case(c)      ? std::string_view(trace.operator_form)
                                : runs_recurrent_only(c) ? "recurrent"
                                                         : "chunked";
  std::stable_sort(alike.begin(), alike.end(), [&](const auto& x, const auto& y) {
    return std::pair(x.second->form != form, x.first) < std::pair(y.second->form != form, y.first);
  });
  std::set<std::string_view> named;
  for (const auto& [rest, m] : alike) {
    if (out.mutants.size() < kMost && named.insert(m->fault).second) out.mutants.push_back(m);
  }
  return out;
}

}  // namespace samestate

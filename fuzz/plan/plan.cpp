#include "fuzz/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "fuzz/plan/filtered.h"
#include "fuzz/plan/kernel_plan.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// Checks that the named kernel exists and that the other filters do not exclude it; otherwise throws Error.
void check_kernel(const KernelTable& table, const std::string& system, const std::string& device,
                  std::string_view name) {
  const KernelRow* kernel = &table.row_named(name);
  if (!is_among(system, kernel->system->name)) {
    throw Error(fmt::format("kernel {} computes {}, not {}: name one of the two", name, kernel->system->name,
                            system));
  }
  if (!device.empty() && kernel->device != device) {
    throw Error(
        fmt::format("kernel {} is for device {}, not {}: name one of the two", name, kernel->device, device));
  }
}

}  // namespace

std::vector<const KernelRow*> wanted_kernels(const KernelTable& table, const std::string& system,
                                             const std::string& device, const std::string& kernel) {
  for (const std::string_view name : plain_names(system)) (void)system_named(std::string(name));
  if (!device.empty() && device != "cpu" && device != "cuda")
    throw Error("device " + device + ": no such device; known: cpu, cuda");
  for (const std::string_view name : plain_names(kernel)) check_kernel(table, system, device, name);
  std::vector<const KernelRow*> kept;
  bool named = false;  // whether there is a kernel for the patterns
  for (const KernelRow& row : table.all()) {
    if (!is_among(system, row.system->name) || !is_among(kernel, row.name)) continue;
    named = true;
    if (device.empty() || row.device == device) kept.push_back(&row);
  }
  if (!named) {
    throw Error(
        fmt::format("no kernel of system={} kernel={}; `samestate list kernels` shows them, and a "
                    "plugin's needs --plugin FILE",
                    system.empty() ? "*" : system, kernel.empty() ? "*" : kernel));
  }
  return kept;
}

bool need_a_device(const KernelTable& table, const std::vector<const KernelRow*>& wanted) {
  const auto is_added = [&](const KernelRow* row) {
    return std::ranges::any_of(table.added(), [&](const KernelRow& other) { return &other == row; });
  };
  return !wanted.empty() && std::ranges::all_of(wanted, [&](const KernelRow* row) {
    return row->device == "cuda" && !is_added(row);
  });
}

bool may_fit(const KernelRow& row, const CaseFilter& filter) {
  Case c;
  c.system = row.system->name;
  return std::all_of(
      filter.conditions().begin(), filter.conditions().end(), [&](const KeyCondition& condition) {
        return (condition.key != "kernel" && condition.key != "system" && condition.key != "pass") ||
               condition.holds(c, row.name);
      });
}

void Plan::add(Case c, const PlanList& list) {
  cases.push_back(std::move(c));
  lists.push_back(&list);
}

void Plan::keep(const std::vector<std::size_t>& places) {
  Plan kept;
  for (const std::size_t i : places) kept.add(std::move(cases[i]), *lists[i]);
  cases = std::move(kept.cases);
  lists = std::move(kept.lists);
}

void Plan::keep_at_most(std::int64_t most) {
  const std::int64_t all = std::ssize(cases);
  if (most <= 0 || all <= most) return;
  std::vector<std::size_t> places;
  for (std::int64_t i = 0; i < most; ++i) places.push_back(static_cast<std::size_t>(i * all / most));
  keep(places);
  thinned_to = most;
  std::set<std::string> lines;
  for (const Case& c : cases) lines.insert(format_case(c));
  for (PlannedCall& call : calls) call.left_out = !call.line.empty() && !lines.contains(call.line);
}

Plan plan_of(const KernelTable& table, const PlanOptions& options) {
  Plan plan;
  std::vector<const KernelRow*> kernels;
  for (const KernelRow* kernel : wanted_kernels(table, options.system, options.device, options.kernel)) {
    if (may_fit(*kernel, options.filter)) kernels.push_back(kernel);
  }
  const double seconds =
      options.effort * options.seconds / static_cast<double>(std::max<std::size_t>(kernels.size(), 1));
  // Kernels are independent, and a covering set takes a while.
  std::vector<KernelPlan> parts(kernels.size());
  std::atomic<std::size_t> next = 0;
  std::mutex reporting;
  std::size_t done = 0;
  if (options.planned) options.planned(0, kernels.size());
  const auto work = [&] {
    for (std::size_t i = next++; i < kernels.size(); i = next++) {
      if (options.stop && options.stop()) return;
      parts[i] = plan_of_kernel(table, *kernels[i], options, seconds);
      const std::scoped_lock lock(reporting);
      ++done;
      if (options.planned) options.planned(done, kernels.size());
    }
  };
  {
    std::vector<std::jthread> threads(
        std::min<std::size_t>(kernels.size(), std::thread::hardware_concurrency()));
    for (std::jthread& thread : threads) thread = std::jthread(work);
  }
  std::vector<Turn> turns;
  for (KernelPlan& part : parts) {
    for (PlannedCase& edge : part.edges) plan.add(std::move(edge.c), *edge.list);
    turns.insert(turns.end(), std::make_move_iterator(part.turns.begin()),
                 std::make_move_iterator(part.turns.end()));
    plan.calls.insert(plan.calls.end(), std::make_move_iterator(part.calls.begin()),
                      std::make_move_iterator(part.calls.end()));
    plan.kernels.push_back(std::move(part.coverage));
  }
  std::stable_sort(turns.begin(), turns.end(), [](const Turn& a, const Turn& b) { return a.at < b.at; });
  for (Turn& turn : turns) plan.add(std::move(turn.planned.c), *turn.planned.list);
  plan.keep(places_taken(plan.cases, table, options.filter));
  plan.total = std::ssize(plan.cases);
  plan.keep_at_most(options.max_cases);
  return plan;
}

std::vector<Case> plan_cases(const KernelTable& table, const PlanOptions& options) {
  return plan_of(table, options).cases;
}

}  // namespace samestate

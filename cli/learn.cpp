#include "cli/learn.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "cli/interrupt.h"
#include "fuzz/plan/compiled_keys.h"
#include "fuzz/plan/probed_limits.h"
#include "fuzz/plan/refusals.h"
#include "harness/processes/campaign.h"

namespace samestate::cli {

void learn_by_calls(KernelTable& table, GatePlanOptions& options, double timeout, Devices* devices,
                    std::vector<std::string>& notes, std::vector<std::string>& remarks) {
  const KernelTable declared = table;
  const PlanOptions& of = options.plan;
  for (const KernelRow* row : wanted_kernels(declared, of.system, of.device, of.kernel)) {
    if (!row->only_inside || row->device == "cpu" || !row->compiled_for.empty() || interrupted()) continue;
    const auto begin = std::chrono::steady_clock::now();
    fmt::print(stderr, "samestate: {}: a few calls, to learn for what it is compiled anew\n", row->name);
    Workers one(case_runner(declared), shared_process(1, timeout, true, devices));
    const CompiledKeys found = find_compiled_keys(
        *row, [&](const Case& c) { return one.run_one(c); }, interrupted);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    if (!found.keys.empty()) {
      table.compiled_for(row->name, found.keys);
      notes.push_back(
          fmt::format("{}: {} calls in {:.0f} s showed that it is compiled anew for {}, in up to {:.1f} s",
                      row->name, found.calls, seconds.count(), fmt::join(found.keys, ", "), found.compile));
    }
    // If a call is refused although the declaration says that the size is allowed, its cases fail.
    const std::string text = row->limits.text();
    if (found.limits.empty() ||
        std::ranges::any_of(found.limits, [&](const auto& limit) { return names_key(text, limit); }))
      continue;
    // After only a few calls, several conditions may separate the refused ones from the others: T <= 64 as well as T %
    // 16 = 0.
    constexpr double kProbeSeconds = 40.0;
    const auto probing = std::chrono::steady_clock::now();
    const ProbedLimits probed = probe_limits(
        *row, [&](const Case& c) { return one.run_one(c); },
        [&] {
          return interrupted() ||
                 std::chrono::duration<double>(std::chrono::steady_clock::now() - probing).count() >
                     kProbeSeconds;
        });
    const std::vector<std::string>& limits = probed.limits.empty() ? found.limits : probed.limits;
    options.learned[row->name] = limits;
    remarks.push_back(fmt::format("{} refused calls of its limits: {}; it keeps to {}: declare {}", row->name,
                                  found.refusal, fmt::join(limits, " and "), fmt::join(limits, "; ")));
  }
}

}  // namespace samestate::cli

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "cli/listing.h"
#include "cli/table.h"
#include "fuzz/mutants/mutant.h"
#include "harness/cases/system.h"
#include "measure/bench/bench.h"
#include "oracles/proofs/identities/identity.h"
#include "reports/records/evidence.h"
#include "samestate_kernel_sources.h"

namespace samestate::cli {
namespace {

/// An empty cell stands for something that a system does not have.
std::string count(std::int64_t n) { return n == 0 ? "-" : std::to_string(n); }

/// Says for how many of a system's kernels the device evidence is fresh, and what the fresh records show.
std::string evidence_of(const std::vector<const KernelRow*>& kernels, const std::vector<Evidence>& all) {
  std::int64_t fresh = 0, passed = 0, failed = 0;
  for (const KernelRow* kernel : kernels) {
    bool found = false;
    for (const Evidence& e : all) {
      if (e.kernel != kernel->name || !is_fresh(e.kernel_sources, SAMESTATE_CUDA_SOURCES, kernel->name))
        continue;
      found = true;
      passed += e.passed;
      failed += e.failed;
    }
    fresh += found ? 1 : 0;
  }
  if (kernels.empty()) return "-";
  if (fresh == 0) return "none";
  return fmt::format("{}{} passed, {} failed",
                     fresh == std::ssize(kernels) ? "" : fmt::format("of {}: ", fresh), passed, failed);
}

}  // namespace

Listing list_coverage(const std::string& evidence_folder) {
  const KernelTable table = kernel_table({});
  const std::vector<Evidence> evidence = read_evidence(evidence_folder);
  Listing out{{"system", "forms", "identities", "bound", "laws", "regimes", "CPU", "CUDA", "fresh evidence",
               "mutants", "model shapes", "plugin"},
              {}};
  for (const System* s : systems()) {
    std::vector<const KernelRow*> cpu, cuda;
    for (const KernelRow& row : table.all()) {
      if (row.system == s) (row.device == "cpu" ? cpu : cuda).push_back(&row);
    }
    const std::int64_t proved =
        std::count_if(identities().begin(), identities().end(),
                      [&](const Identity& identity) { return identity.system == s->name; });
    const std::int64_t mutants =
        std::count_if(all_mutants().begin(), all_mutants().end(),
                      [&](const Mutant& m) { return m.system == s->name && m.equivalent.empty(); });
    const std::vector<Case> shapes = bench_cases(
        table, {.kernels = {}, .system = std::string(s->name), .device = "cpu", .lines = {}, .quick = false});
    out.rows.push_back({std::string(s->name), count(std::ssize(s->forms)), count(proved),
                        s->of_family() ? "derived" : "running error", count(std::ssize(s->laws)),
                        count(std::ssize(s->regimes)), count(std::ssize(cpu)), count(std::ssize(cuda)),
                        evidence_of(cuda, evidence), count(mutants), count(std::ssize(shapes)),
                        s->kernel_rows.empty() ? "-" : "yes"});
  }
  // Counts the references that several systems share.
  std::map<std::string_view, std::int64_t> shared;
  for (const Identity& identity : identities()) {
    if (std::none_of(systems().begin(), systems().end(),
                     [&](const System* s) { return s->name == identity.system; }))
      ++shared[identity.system];
  }
  for (const auto& [header, proved] : shared) {
    std::vector<std::string> row(out.header.size());
    row[0] = fmt::format("(several: {})", header);
    row[2] = count(proved);
    out.rows.push_back(std::move(row));
  }
  return out;
}

}  // namespace samestate::cli

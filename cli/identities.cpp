#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "harness/cases/form_words.h"
#include "oracles/proofs/identities/identity.h"
#include "reference/error.h"
#include "reports/text/identities.h"

namespace samestate::cli {
namespace {

struct IdentitiesCommand {
  std::string id;
  std::string system;
  std::uint64_t seed = 1;
  bool json = false;
};

std::string name_of(Expectation expectation) {
  switch (expectation) {
    case Expectation::equal:
      return "equal";
    case Expectation::exact:
      return "exact";
    case Expectation::holds:
      return "holds";
    case Expectation::differs:
      return "differs";
  }
  return "";
}

int run_identities(const IdentitiesCommand& options) {
  std::vector<IdentityRow> rows;
  std::int64_t left = 0;
  note_interrupts();
  for (const Identity& identity : identities()) {
    if (!options.id.empty() && !lists(identity.id, options.id) && identity.name != options.id) continue;
    if (!options.system.empty() && identity.system != options.system) continue;
    if (interrupted()) {
      ++left;
      continue;
    }
    const IdentityResult result = evaluate(identity, options.seed);
    rows.push_back({std::string(identity.id), std::string(identity.name), std::string(identity.system),
                    std::string(identity.statement), name_of(identity.expectation), result.in_float64,
                    result.in_50_digits, result.passed});
  }
  if (rows.empty() && left == 0) {
    throw Error("no identity" + (options.id.empty() ? "" : " --id " + options.id) +
                (options.system.empty() ? "" : " --system " + options.system) +
                ": `samestate identities` shows them all");
  }
  fmt::print("{}", options.json ? identities_json(rows) : identities_text(rows));
  if (left > 0)
    fmt::print(stderr, "samestate: interrupted after {} of {} identities\n", rows.size(),
               std::ssize(rows) + left);
  if (!std::all_of(rows.begin(), rows.end(), [](const IdentityRow& row) { return row.passed; })) return kFail;
  return left > 0 ? kVacuous : kPass;
}

}  // namespace

Command add_identities(CLI::App& app) {
  auto options = std::make_shared<IdentitiesCommand>();
  app.add_option("--id", options->id,
                 "only identities with this id or name, for example EQ-14, P-03 or NC-no-delta-term");
  app.add_option("--system", options->system,
                 "only identities of this system (the stem of a reference header)");
  app.add_option("--seed", options->seed, "seed of the random data")
      ->check(seed_number())
      ->capture_default_str();
  app.add_flag("--json", options->json, "machine-readable");
  app.footer(
      "Evaluates each relation between evaluations of the reference twice, in float64 and in 50 "
      "decimal digits. A relation\n"
      "that holds to 1e-15 but not to 1e-48 is not an identity.\n"
      "  equal    two paths agree up to rounding      exact    bit for bit\n"
      "  holds    an inequality, residual 0           differs  a mistake that must be visible "
      "(negative control)\n"
      "Exit: 0 if all are as expected, 1 if one is not, 2 usage.\n"
      "The laws that are required of kernels are listed by `samestate list laws`.");
  return [options] { return run_identities(*options); };
}

}  // namespace samestate::cli

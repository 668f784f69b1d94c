#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/options.h"
#include "oracles/proofs/identities/identity.h"
#include "reference/error.h"

namespace samestate::cli {
namespace {

std::string_view name_of(Expectation expectation) {
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

}  // namespace

Command add_laws(CLI::App& app) {
  struct Options {
    std::string id;
    std::string system;
    std::uint64_t seed = 1;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  app.add_option("--id", options->id, "only laws of this id or name, as EQ-14, P-03 or NC-no-delta");
  app.add_option("--system", options->system, "only laws of this system (the stem of a reference header)");
  app.add_option("--seed", options->seed, "of the random data")->check(seed_number())->capture_default_str();
  app.add_flag("--json", options->json, "machine-readable");
  app.footer(
      "Evaluates each relation between evaluations of the reference twice, in float64 and in 50 decimal "
      "digits. What holds "
      "to 1e-15 and not to 1e-48 is no law.\n"
      "  equal    two paths agree up to rounding      exact    bit for bit\n"
      "  holds    an inequality, residual 0           differs  a mistake that must show (negative control)\n"
      "Exit: 0 all as expected, 1 one is not, 2 usage.");
  return [options] {
    nlohmann::json out = nlohmann::json::array();
    std::int64_t rows = 0;
    std::int64_t failed = 0;
    double largest64 = 0.0;
    double largest50 = 0.0;
    for (const Identity& law : identities()) {
      if (!options->id.empty() && law.id != options->id && law.name != options->id) continue;
      if (!options->system.empty() && law.system != options->system) continue;
      const IdentityResult result = evaluate(law, options->seed);
      ++rows;
      failed += result.passed ? 0 : 1;
      if (law.expectation != Expectation::differs) {
        largest64 = std::max(largest64, result.in_float64);
        largest50 = std::max(largest50, result.in_50_digits);
      }
      if (options->json) {
        out.push_back({{"id", law.id},
                       {"name", law.name},
                       {"system", law.system},
                       {"statement", law.statement},
                       {"expected", name_of(law.expectation)},
                       {"float64", result.in_float64},
                       {"digits50", result.in_50_digits},
                       {"passed", result.passed}});
      } else {
        fmt::print("{} {:<8} {:<8} {:>9.2e} {:>9.2e}  {}: {}\n", result.passed ? "ok  " : "FAIL", law.id,
                   name_of(law.expectation), result.in_float64, result.in_50_digits, law.name, law.statement);
      }
    }
    if (rows == 0) {
      throw Error("no law" + (options->id.empty() ? "" : " --id " + options->id) +
                  (options->system.empty() ? "" : " --system " + options->system) +
                  ": `samestate laws` shows them all");
    }
    if (options->json) {
      fmt::print("{}\n", out.dump(2));
    } else {
      fmt::print(
          "{} laws, {} not as expected; largest residual that should vanish {:.2e} in float64, {:.2e} in 50 "
          "digits\n",
          rows, failed, largest64, largest50);
    }
    return static_cast<int>(failed == 0 ? kPass : kFail);
  };
}

}  // namespace samestate::cli

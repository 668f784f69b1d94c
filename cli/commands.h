#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

/// The verbs of the command (DESIGN 7). Each adds its options to `app`; the returned function runs it and
/// returns the exit code. Only this floor prints, exits and reads the environment.
namespace samestate::cli {

/// The exit codes (HARNESS 3). Bad input gives 2 in every verb.
enum Exit : int {
  kPass = 0,
  kFail = 1,
  kUsage = 2,
  kVacuous = 3,
  kFlaky = 4,
  kCrash = 5,
  kNothingRan = 77,
};

using Command = std::function<int()>;

/// The remedy to name in a build that contains only the judge, without mutants (all_mutants() is empty) and
/// proofs.
inline constexpr const char* kWithEverything =
    "Build the command with -DSAMESTATE_JUDGE_ONLY=OFF (pip: -C cmake.define.SAMESTATE_JUDGE_ONLY=OFF) to "
    "have the mutants and "
    "the proofs";

Command add_gate(CLI::App& app);
Command add_fuzz(CLI::App& app);
Command add_repro(CLI::App& app);
Command add_judge(CLI::App& app);
Command add_list(CLI::App& app);
Command add_probe(CLI::App& app);
Command add_goldens(CLI::App& app);
Command add_equations(CLI::App& app);
Command add_identities(CLI::App& app);
Command add_sweep(CLI::App& app);
Command add_report(CLI::App& app);
Command add_merge(CLI::App& app);
Command add_compare(CLI::App& app);
Command add_board(CLI::App& app);
Command add_mutants(CLI::App& app);
Command add_bench(CLI::App& app);
Command add_card(CLI::App& app);
Command add_diagnose(CLI::App& app);
Command add_export(CLI::App& app);
Command add_scale(CLI::App& app);
Command add_serve(CLI::App& app);
Command add_tolerance(CLI::App& app);
Command add_explain(CLI::App& app);
Command add_help(CLI::App& app);
Command add_version(CLI::App& app);
Command add_completion(CLI::App& app);

}  // namespace samestate::cli

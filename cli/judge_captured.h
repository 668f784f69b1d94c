#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "cli/judge_folder.h"
#include "harness/captured/captured_calls.h"

namespace samestate::cli {

/// The options of `samestate judge` for a folder that samestate.capture wrote.
struct CapturedOptions {
  std::string system, form, contract, function, budget = "2s";
  std::int64_t chunk = 0;
  std::map<std::string, std::string> conventions;  ///< by key of a declaration
  std::vector<std::string> arguments;              ///< OURS=THEIRS
  std::vector<std::string> ignored;

  /// True if any of these options was given; they apply to captured calls alone.
  [[nodiscard]] bool any() const;
};

void add_captured_options(CLI::App& app, CapturedOptions& options);

/// Judges every call of the folder and prints a paragraph for each, with the gate's reports and exit codes; returns 3
/// if no call was what its declaration says. Throws Error for a manifest or file that is damaged, calls of a function
/// that is not declared, and options that contradict a declaration.
[[nodiscard]] int judge_captured_folder(const JudgeFolderOptions& folder, const CapturedOptions& options);

}  // namespace samestate::cli

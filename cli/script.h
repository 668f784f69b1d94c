#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "harness/explain/explain.h"
#include "harness/run/run_case.h"
#include "harness/script/script.h"

/// `repro --script FILE.py`: a run as one Python file that does not need samestate.
namespace samestate::cli {

struct ScriptOptions {
  std::string file;
  bool force = false;
};

void add_script_options(CLI::App& app, ScriptOptions& options);

/// Called before the run. Throws Error if the file exists and --force is not given, or if it cannot be
/// written.
void require_script_writable(const ScriptOptions& options);

/// Returns the texts of a script that do not come from its run: how to repeat it, with which build, and for a kernel of
/// a Python subject the source of its call, for which its interpreter is asked. Throws Error if it has no such source.
[[nodiscard]] ScriptWords script_words(const Case& c, const KernelTable& table,
                                       const std::vector<std::string>& plugins);

/// Writes the script of a run, with the reason and the likely cause as its sentence. Throws Error as
/// script_of does.
void write_script(const ScriptOptions& options, ScriptWords words, const Record& record, const Trace& trace,
                  const Explanation& explanation);

}  // namespace samestate::cli

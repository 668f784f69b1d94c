#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "harness/explain/explain.h"
#include "harness/run/run_case.h"
#include "harness/script/script.h"

/// `repro --script FILE.py`: a run as one Python file that needs no samestate.
namespace samestate::cli {

struct ScriptOptions {
  std::string file;
  bool force = false;
};

void add_script_options(CLI::App& app, ScriptOptions& options);

/// Before the run. Throws Error if the file is there and --force is not given, or cannot be written.
void require_script_writable(const ScriptOptions& options);

/// Holds the words of a script that its run does not have: how to repeat it, by which build, and of a kernel of a subject in
/// Python the text of its call, for which its interpreter is asked. Throws Error if there is no such text.
[[nodiscard]] ScriptWords script_words(const Case& c, const KernelTable& table,
                                       const std::vector<std::string>& plugins);

/// Writes the script of a run, the reason and what it looks like as its sentence. Throws Error as script_of.
void write_script(const ScriptOptions& options, ScriptWords words, const Record& record, const Trace& trace,
                  const Explanation& explanation);

}  // namespace samestate::cli

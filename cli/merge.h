#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cli/run_lines.h"
#include "harness/records/fresh_file.h"
#include "reports/records/merge_runs.h"

/// The parts of `samestate merge`: one function for each verb whose shards it joins.
namespace samestate::cli {

/// The options of `samestate merge`; --help explains them.
struct MergeOptions {
  std::vector<std::string> files, plugins;
  std::string jsonl, junit, markdown, coverage, new_baseline, checkpoint, corpus;
  bool no_again = false, json = false;
  double floor = 100.0;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
};

/// A run file that appears only when it is complete: it is written to a temporary name and then renamed (FreshFile).
class MergedFile {
 public:
  /// Does nothing if `path` is empty. Throws Error if the file cannot be created.
  MergedFile(const std::string& path, const Run& run);
  [[nodiscard]] RunLines& lines() { return lines_; }
  /// Gives the file its name. Returns false, and prints the reason to stderr, if that fails.
  [[nodiscard]] bool keep();

 private:
  std::unique_ptr<FreshFile> fresh_;  ///< null if the path is not a regular file, such as /dev/stdout
  RunLines lines_;
};

/// Each of these prints what its verb prints, and returns its exit code. They throw Error for files that cannot be
/// joined.
[[nodiscard]] int merge_gate(MergedRun merged, const MergeOptions& options);
[[nodiscard]] int merge_search(MergedRun merged, const MergeOptions& options);
[[nodiscard]] int merge_sweep(MergedRun merged, const MergeOptions& options);
[[nodiscard]] int merge_mutants(const std::vector<std::string>& files, const MergeOptions& options);

}  // namespace samestate::cli

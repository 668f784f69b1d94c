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

/// --help says what each is.
struct MergeOptions {
  std::vector<std::string> files, plugins;
  std::string jsonl, junit, markdown, coverage, new_baseline, checkpoint, corpus;
  bool no_again = false, json = false;
  double floor = 100.0;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
};

/// A run file that is there only whole: written beside its place, then renamed (FreshFile).
class MergedFile {
 public:
  /// Empty `path`: none. Throws Error if it cannot be begun.
  MergedFile(const std::string& path, const Run& run);
  [[nodiscard]] RunLines& lines() { return lines_; }
  /// Puts it in its place; false, with the reason on stderr, where that could not be done.
  [[nodiscard]] bool keep();

 private:
  std::unique_ptr<FreshFile> fresh_;  ///< none where the path is no file, as /dev/stdout
  RunLines lines_;
};

/// Each prints what its verb prints and returns its exit code. Throw Error.
[[nodiscard]] int merge_gate(MergedRun merged, const MergeOptions& options);
[[nodiscard]] int merge_search(MergedRun merged, const MergeOptions& options);
[[nodiscard]] int merge_sweep(MergedRun merged, const MergeOptions& options);
[[nodiscard]] int merge_mutants(const std::vector<std::string>& files, const MergeOptions& options);

}  // namespace samestate::cli

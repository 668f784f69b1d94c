#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "harness/records/record.h"
#include "reports/records/json_lines.h"
#include "reports/records/run.h"

namespace samestate::cli {

/// The options of `samestate judge` for a folder.
struct JudgeFolderOptions {
  std::string folder, jsonl, junit, markdown, commit;
  double timeout = 0.0;  ///< seconds for each file
  bool json = false, strict = false;
  int nothing_judged = 77;  ///< the exit code if no case was judged and none was vacuous
  std::string damaged =
      {};  ///< a remark about files that cannot be read, which are bad input if nothing is worse
};

/// A file of a folder to be judged.
struct FolderCase {
  Record record;     ///< what is known of it before it is read
  std::string path;  ///< the path of the file, appended to the reason of a verdict that is not a pass
  /// Runs in a process of its own and sets the record's judgement and seconds; returns other measurements by name.
  std::function<std::map<std::string, double>(Record&)> judge;
  std::string call = {};  ///< for a recorded call, the name of its file
};

struct JudgedCase {
  Record record;
  RecordedCall call;
};

/// The judgements of a folder, in the order of its cases.
struct JudgedFolder {
  std::vector<JudgedCase> cases;
  RunEnd end;

  [[nodiscard]] std::vector<Record> records() const;
};

/// Judges the cases one after the other, each in a process of its own with a time limit, and writes the requested
/// reports. `end.exit` is the gate's exit code for the judged cases.
[[nodiscard]] JudgedFolder judge_cases(const JudgeFolderOptions& options, std::vector<FolderCase> cases);

/// Judges every file in the folder's manifest (`samestate export`), with the gate's summary, reports and exit codes. A
/// file whose outputs are all NaN has not been written and is unsupported. Throws Error if there is no manifest, if it
/// has another format or names a file outside the folder, and if a file is missing or belongs to another case than its
/// line.
[[nodiscard]] int judge_folder(const JudgeFolderOptions& options);

}  // namespace samestate::cli

#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "harness/records/record.h"
#include "reports/records/json_lines.h"
#include "reports/records/run.h"

namespace samestate::cli {

/// Of `samestate judge` for a folder.
struct JudgeFolderOptions {
  std::string folder, jsonl, junit, markdown, commit;
  double timeout = 0.0;  ///< seconds a file
  bool json = false, strict = false;
  int nothing_judged = 77;  ///< exit code where no case was judged, and none was vacuous
  std::string damaged =
      {};  ///< files that are no cases, since they cannot be read: bad input if nothing is worse
};

/// A file of a folder that is to be judged.
struct FolderCase {
  Record record;     ///< what is known of it before it is read
  std::string path;  ///< of the file, behind the reason of what does not pass
  /// In a process of its own: judgement and seconds of the record; returns what else was measured, by name.
  std::function<std::map<std::string, double>(Record&)> judge;
  std::string call = {};  ///< of a recorded call: the name of its file
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

/// Judges cases one after the other, each in a process of its own within its time, and writes the reports that are asked
/// for. `end.exit` is the gate's code of what was judged.
[[nodiscard]] JudgedFolder judge_cases(const JudgeFolderOptions& options, std::vector<FolderCase> cases);

/// Judges every file of the folder's manifest (`samestate export`): gate's summary, reports and exit codes. A file whose
/// outputs are all NaN has not been written and is unsupported. Throws Error: no manifest, one of another format, a name
/// that leaves the folder, a file that is missing or of another case than its line.
[[nodiscard]] int judge_folder(const JudgeFolderOptions& options);

}  // namespace samestate::cli

#pragma once

#include <string>

namespace samestate::cli {

/// Of `samestate judge` for a folder.
struct JudgeFolderOptions {
  std::string folder, jsonl, junit, markdown, commit;
  double timeout = 0.0;  ///< seconds a file
  bool json = false, strict = false;
};

/// Judges every file of the folder's manifest (`samestate export`): gate's summary, reports and exit codes. A file whose
/// outputs are all NaN has not been written and is unsupported. Throws Error: no manifest, one of another format, a name
/// that leaves the folder, a file that is missing or of another case than its line.
[[nodiscard]] int judge_folder(const JudgeFolderOptions& options);

}  // namespace samestate::cli

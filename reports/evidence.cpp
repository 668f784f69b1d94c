#include "reports/evidence.h"

#include <algorithm>
#include <map>

#include "reports/json_lines.h"

namespace samestate {

std::vector<Evidence> read_evidence(const std::filesystem::path& folder) {
  std::vector<Evidence> all;
  if (!std::filesystem::is_directory(folder)) return all;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& path : files) {
    const RecordFile file = read_json_lines(path);
    if (file.runs.empty()) continue;
    const Run& run = file.runs.front();
    std::map<std::string, Evidence> kernels;
    for (const Record& record : file.records) {
      if (record.device == "cpu") continue;
      Evidence& evidence = kernels[record.kernel];
      switch (record.judgement.verdict) {
        case Verdict::pass:
          ++evidence.passed;
          break;
        case Verdict::fail:
        case Verdict::crash:
        case Verdict::timeout:
        case Verdict::flaky:
          ++evidence.failed;
          break;
        case Verdict::vacuous:
        case Verdict::unsupported:
        case Verdict::skipped:
          break;
      }
    }
    for (auto& [kernel, evidence] : kernels) {
      if (evidence.passed + evidence.failed == 0) continue;  // skipped throughout: nothing ran
      evidence.kernel = kernel;
      evidence.device = run.device;
      evidence.driver = run.driver;
      evidence.toolkit = run.toolkit;
      evidence.kernel_sources = run.kernel_sources;
      evidence.file = path.filename().string();
      all.push_back(evidence);
    }
  }
  return all;
}

}  // namespace samestate

#include "reports/records/evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string_view>
#include <tuple>
#include <utility>

#include "harness/records/hash.h"
#include "reports/records/digest.h"

namespace samestate {
namespace {

/// Returns the files sorted by name; none if the folder does not exist.
std::vector<std::filesystem::path> record_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  if (!std::filesystem::is_directory(folder)) return files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// Keeps the rows of kernels that ran: a kernel that was skipped throughout has no evidence.
template <class Key>
void append(std::vector<Evidence>& all, std::map<Key, Evidence>& kernels, const std::filesystem::path& path) {
  for (auto& [key, evidence] : kernels) {
    if (evidence.passed + evidence.failed == 0) continue;
    evidence.file = path.filename().string();
    all.push_back(std::move(evidence));
  }
}

}  // namespace

std::string sources_of(const std::string& sources, std::string_view kernel) {
  if (sources.find('=') == std::string::npos) return sources;
  std::istringstream entries(sources);
  for (std::string entry; entries >> entry;) {
    const std::size_t equals = entry.find('=');
    if (std::string_view(entry).substr(0, equals) == kernel) return entry.substr(equals + 1);
  }
  return "";
}

bool is_fresh(const std::string& ran, const std::string& now, std::string_view kernel) {
  const std::string built = sources_of(now, kernel);
  return !built.empty() && ran == built;
}

std::string sources_text(const std::string& sources) {
  const std::ptrdiff_t kernels = std::count(sources.begin(), sources.end(), '=');
  return kernels == 0 ? sources : fmt::format("{:016x} of {} CUDA kernels", hash_of(sources), kernels);
}

std::vector<Evidence> read_evidence(const std::filesystem::path& folder) {
  std::vector<Evidence> all;
  for (const std::filesystem::path& path : record_files(folder)) {
    const RecordFile file = read_json_lines(path);
    if (file.runs.empty()) continue;
    const Run& run = file.runs.front();
    std::map<std::string, Evidence> kernels;
    for (const Record& record : file.records) {
      if (record.device != "cuda") continue;
      Evidence& evidence = kernels[record.kernel];
      evidence.kernel = record.kernel;
      evidence.device = run.device;
      evidence.driver = run.driver;
      evidence.toolkit = run.toolkit;
      evidence.kernel_sources = sources_of(run.kernel_sources, record.kernel);
      evidence.passed += record.judgement.verdict == Verdict::pass ? 1 : 0;
      evidence.failed += is_failure(record.judgement.verdict) ? 1 : 0;
    }
    append(all, kernels, path);
  }
  for (const Digest& digest : digests_in(folder)) {
    // A row of a board has one contract.
    std::map<std::tuple<std::string, std::string, std::string>, Evidence> kernels;
    for (const BoardRow& row : digest.board.rows) {
      if (row.device == "cpu" || row.device == "elsewhere") continue;
      Evidence& evidence = kernels[{row.kernel, row.device, row.sources}];
      evidence.kernel = row.kernel;
      evidence.device = row.device;
      evidence.driver = row.driver;
      evidence.toolkit = row.toolkit;
      evidence.kernel_sources = row.sources;
      evidence.passed += row.passed;
      evidence.failed += row.failed;
    }
    append(all, kernels, digest.path);
  }
  std::ranges::stable_sort(all, {}, &Evidence::file);
  return all;
}

std::vector<TimedEvidence> timings_of(const RecordFile& content, const std::string& file) {
  std::vector<TimedEvidence> all;
  for (const RecordedTiming& recorded : content.timings) {
    const Run& run = content.runs[recorded.run];
    const std::string& kind = recorded.timed.record.device;
    all.push_back({recorded.timed, kind == "cpu" || run.device.empty() ? kind : run.device, run.driver,
                   run.toolkit, sources_of(run.kernel_sources, recorded.timed.record.kernel), file,
                   run.date});
  }
  return all;
}

std::vector<TimedEvidence> read_timings(const std::filesystem::path& folder) {
  std::vector<TimedEvidence> all;
  for (const std::filesystem::path& path : record_files(folder)) {
    for (TimedEvidence& timing : timings_of(read_json_lines(path), path.filename().string()))
      all.push_back(std::move(timing));
  }
  for (Digest& digest : digests_in(folder)) {
    for (TimedEvidence& timing : digest.board.timings) {
      timing.file = digest.path.filename().string();
      all.push_back(std::move(timing));
    }
  }
  std::ranges::stable_sort(all, {}, &TimedEvidence::file);
  return all;
}

std::vector<TimedEvidence> latest_timings(const std::vector<TimedEvidence>& all) {
  std::vector<TimedEvidence> latest;
  std::map<std::tuple<std::string, std::string, std::string>, std::size_t> places;
  for (const TimedEvidence& e : all) {
    const Record& r = e.timed.record;
    const auto [place, added] = places.try_emplace({r.line, r.kernel, e.device}, latest.size());
    if (added) {
      latest.push_back(e);
    } else {
      latest[place->second] = e;
    }
  }
  return latest;
}

}  // namespace samestate

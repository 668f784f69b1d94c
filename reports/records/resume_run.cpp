#include "reports/records/resume_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "reference/error.h"
#include "reports/records/files.h"
#include "reports/records/json_lines.h"

namespace samestate {
namespace {

/// Throws Error if the file's run is not the one to be continued.
void check_run(const std::string& file, const Run& then, const Run& now) {
  const auto same = [&](std::string_view what, const std::string& before, const std::string& here) {
    if (before == here) return;
    throw Error(fmt::format(
        "{}: its run has {} {}, and this one has {}: go on with the command that began it, name another "
        "--jsonl, or leave --resume out, which writes the file anew",
        file, what, before.empty() ? "none" : "'" + before + "'", here.empty() ? "none" : "'" + here + "'"));
  };
  same("verb", then.part.verb, now.part.verb);
  same("version", then.version, now.version);
  same("commit", then.commit, now.commit);
  same("plugins", then.plugins, now.plugins);
  same("kernel sources", then.kernel_sources, now.kernel_sources);
  same("device", then.device, now.device);
  same("shard", fmt::format("{}/{}", then.part.shard, then.part.shards),
       fmt::format("{}/{}", now.part.shard, now.part.shards));
  std::set<std::string> names;
  for (const auto& [name, value] : then.part.options) names.insert(name);
  for (const auto& [name, value] : now.part.options) names.insert(name);
  const auto value_of = [](const Run& run, const std::string& name) {
    const auto found = run.part.options.find(name);
    return found == run.part.options.end() ? std::string() : found->second;
  };
  for (const std::string& name : names) same("--" + name, value_of(then, name), value_of(now, name));
  same("plan", then.part.plan, now.part.plan);
}

/// Says what a file contains that is not a single run of a gate.
std::string held_by(const RecordFile& file) {
  if (!file.points.empty()) return fmt::format("{} points of a sweep", file.points.size());
  if (!file.timings.empty()) return fmt::format("{} timings of a bench", file.timings.size());
  if (file.runs.size() > 1) return fmt::format("{} runs, one after another", file.runs.size());
  return file.records.empty() ? "no line of a run" : "cases without the line of their run";
}

/// Returns the line of the run, and the first and last lines of these cases.
std::string lines_of(const std::filesystem::path& path, const std::set<std::int64_t>& kept) {
  std::ifstream file(path, std::ios::binary);
  std::string out;
  for (std::string line; std::getline(file, line);) {
    const auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object()) continue;  // the last line, cut off
    const std::string event = object.value("event", "");
    const bool of_case = (event == "start" || event == "end") && kept.contains(object.value("case", -1LL));
    if (event == "run" || of_case) out += line + "\n";
  }
  return out;
}

}  // namespace

EarlierCases go_on_with(const std::filesystem::path& path, const Run& now,
                        const std::vector<std::int64_t>& numbers) {
  EarlierCases out;
  std::error_code code;
  if (!std::filesystem::exists(path, code) || std::filesystem::is_empty(path, code)) return out;
  const FileLock lock(path);
  const RecordFile file = read_json_lines(path);
  const std::string name = path.string();
  if (file.runs.size() != 1 || !file.points.empty() || !file.timings.empty())
    throw Error(fmt::format(
        "{}: found {}, expected the one run that `samestate gate --jsonl` wrote there: name that run's file, "
        "or leave --resume out, which writes the file anew",
        name, held_by(file)));
  check_run(name, file.runs.front(), now);
  std::set<std::int64_t> kept;
  for (std::size_t i = 0; i < file.records.size(); ++i) {
    const RecordPlace& place = file.places[i];
    const bool chosen_later = place.number >= now.part.total;
    if (!place.ended || chosen_later || file.records[i].judgement.verdict == Verdict::skipped) continue;
    if (!std::binary_search(numbers.begin(), numbers.end(), place.number))
      throw Error(fmt::format("{}: case {} is none of this shard; name another --jsonl", name, place.number));
    if (!kept.insert(place.number).second)
      throw Error(fmt::format("{}: case {} ended twice; name another --jsonl", name, place.number));
    out.records.push_back(file.records[i]);
    out.numbers.push_back(place.number);
  }
  write_atomically(path, lines_of(path, kept));
  return out;
}

}  // namespace samestate

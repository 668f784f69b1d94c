#include "reports/records/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "fixtures/json_syntax.h"
#include "reference/error.h"
#include "reports/records/files.h"

namespace samestate {
namespace {

using BaselineJson = nlohmann::json;

bool counts(const Record& record) {
  return record.judgement.verdict == Verdict::pass && std::isfinite(record.judgement.ratio);
}

}  // namespace

Baseline baseline_of(std::span<const Record> records, const std::string& version) {
  Baseline out{version, {}};
  for (const Record& record : records) {
    if (counts(record)) out.ratios[record.line] = record.judgement.ratio;
  }
  return out;
}

void write_baseline(const std::filesystem::path& path, const Baseline& baseline) {
  BaselineJson json;
  json["schema"] = kBaselineSchema;
  json["samestate"] = baseline.version;
  json["ratios"] = baseline.ratios;
  write_atomically(path, json.dump(0) + "\n");
}

Baseline read_baseline(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) throw Error(path.string() + ": is a folder; name a file in it");
  const std::optional<std::string> text = text_of(path);
  if (!text) throw Error(path.string() + ": cannot be read; make it with --write-baseline");
  const BaselineJson json = BaselineJson::parse(*text, nullptr, false);
  if (json.is_discarded())
    throw Error(fmt::format("{}: no baseline, since it is not JSON: {}; make one with --write-baseline",
                            path.string(), json_error(*text)));
  if (!json.is_object() || !json.contains("schema") || !json["schema"].is_number_integer()) {
    throw Error(path.string() + ": no baseline; make one with --write-baseline");
  }
  if (json["schema"] != kBaselineSchema) {
    throw Error(
        fmt::format("{}: baseline of schema {}, this build reads {}; make a new one with --write-baseline",
                    path.string(), json["schema"].dump(), kBaselineSchema));
  }
  Baseline out;
  if (!json.contains("samestate") || !json["samestate"].is_string() || !json.contains("ratios") ||
      !json["ratios"].is_object()) {
    throw Error(path.string() + ": damaged baseline: 'samestate' or 'ratios' is missing; make a new one");
  }
  out.version = json["samestate"].get<std::string>();
  for (const auto& [line, ratio] : json["ratios"].items()) {
    if (!ratio.is_number() || !(ratio.get<double>() >= 0.0)) {
      throw Error(fmt::format("{}: damaged baseline: the ratio of '{}' is {}; make a new one", path.string(),
                              line, ratio.dump()));
    }
    out.ratios.emplace(line, ratio.get<double>());
  }
  return out;
}

BaselineReport compare_with(const Baseline& baseline, std::span<const Record> records, double factor,
                            double floor) {
  BaselineReport out;
  std::map<std::string, double> left = baseline.ratios;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Record& record = records[i];
    const auto at = baseline.ratios.find(record.line);
    if (at != baseline.ratios.end() && record.judgement.verdict == Verdict::fail) left.erase(record.line);
    if (!counts(record)) continue;
    if (at == baseline.ratios.end()) {
      ++out.unknown;
      continue;
    }
    left.erase(record.line);
    ++out.compared;
    const double now = record.judgement.ratio;
    if (now > floor && now > factor * at->second) out.grown.push_back({i, at->second, now});
  }
  out.not_run = static_cast<std::int64_t>(left.size());
  std::stable_sort(out.grown.begin(), out.grown.end(), [](const Regression& a, const Regression& b) {
    return a.now * b.before > b.now * a.before;
  });
  return out;
}

}  // namespace samestate

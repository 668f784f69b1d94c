#include "reports/text/gate_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "reports/records/failure_groups.h"
#include "reports/records/summary.h"

namespace samestate {
namespace {

nlohmann::ordered_json json_number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

using Json = nlohmann::ordered_json;

std::string text_of(const std::map<Verdict, std::int64_t>& counts, std::span<const Record> records,
                    const RunEnd& end) {
  Json out = {{"cases", 0}, {"judged", 0}};
  Json& verdicts = out["verdicts"] = Json::object();
  std::int64_t cases = 0, judged = 0;
  for (const auto& [verdict, count] : counts) {
    cases += count;
    judged += is_judged(verdict) ? count : 0;
    if (count > 0) verdicts[std::string(name_of(verdict))] = count;
  }
  out["cases"] = cases;
  out["judged"] = judged;
  out["exit"] = end.exit;
  if (!end.not_complete.empty()) out["not_complete"] = end.not_complete;
  if (!end.remarks.empty()) out["remarks"] = end.remarks;
  out["seconds"] = end.seconds;
  out["seed"] = end.seed;
  Json& failures = out["failures"] = Json::array();
  for (const FailureGroup& group : failure_groups(records)) {
    const Record& r = records[group.example];
    failures.push_back({{"kernel", group.kernel},
                        {"form", group.form},
                        {"law", group.law},
                        {"cause", group.cause},
                        {"only", group.only},
                        {"cases", group.cases},
                        {"verdict", name_of(r.judgement.verdict)},
                        {"line", r.line},
                        {"command", repro_command(r)},
                        {"gate", r.judgement.gate},
                        {"ratio", json_number(r.judgement.ratio)},
                        {"error", json_number(r.judgement.error)},
                        {"bound", json_number(r.judgement.bound)},
                        {"reason", r.judgement.reason},
                        {"looks_like", r.looks_like}});
  }
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string gate_json(std::span<const Record> records, const RunEnd& end) {
  std::map<Verdict, std::int64_t> counts;
  for (const Record& record : records) ++counts[record.judgement.verdict];
  return text_of(counts, records, end);
}

std::string search_json(const std::map<Verdict, std::int64_t>& counts, std::span<const Record> shrunk,
                        const RunEnd& end) {
  return text_of(counts, shrunk, end);
}

}  // namespace samestate

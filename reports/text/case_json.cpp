#include "reports/text/case_json.h"

#include "reports/records/json_fields.h"
#include "reports/records/summary.h"

namespace samestate {

namespace {

void add_held(json_fields::Json& out, const Judgement& j) {
  if (j.held == 0) return;
  out["held"] = j.held;
  out["held_of"] = j.held_of;
  out["held_which"] = j.held_which;
}

std::string one_line(const json_fields::Json& out) {
  return out.dump(-1, ' ', false, json_fields::Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string with_deeper(const std::string& case_object, const Record& deeper) {
  using json_fields::encoded;
  const Judgement& j = deeper.judgement;
  json_fields::Json out = json_fields::Json::parse(case_object);
  json_fields::Json& found = out["deeper"];
  found = {{"policy", deeper.policy},   {"verdict", name_of(j.verdict)}, {"gate", j.gate},
           {"ratio", encoded(j.ratio)}, {"error", encoded(j.error)},     {"bound", encoded(j.bound)},
           {"reason", j.reason},        {"seconds", deeper.seconds}};
  add_held(found, j);
  return one_line(out);
}

std::string case_json(const Record& record, const CaseExplanation& explanation) {
  using json_fields::encoded;
  const Judgement& j = record.judgement;
  json_fields::Json out = {{"line", record.line},
                           {"kernel", record.kernel},
                           {"system", record.system},
                           {"form", record.form},
                           {"contract", record.contract},
                           {"regime", record.regime},
                           {"law", record.law},
                           {"device", record.device},
                           {"verdict", name_of(j.verdict)},
                           {"gate", j.gate},
                           {"ratio", encoded(j.ratio)},
                           {"error", encoded(j.error)},
                           {"measure", measure_of(j.gate)},
                           {"bound", encoded(j.bound)},
                           {"place", place_of(j)},
                           {"expected", encoded(j.expected)},
                           {"actual", encoded(j.actual)},
                           {"row_ratio", encoded(j.row_ratio)},
                           {"head_ratio", encoded(j.head_ratio)},
                           {"state_ratio", encoded(j.state_ratio)},
                           {"hard_ratio", encoded(j.hard_ratio)},
                           {"twin_ratio", encoded(j.twin_ratio)},
                           {"sampled_ratio", encoded(j.sampled_ratio)},
                           {"relative_rms", encoded(j.relative_rms)},
                           {"rows", j.rows},
                           {"reason", j.reason},
                           {"seconds", record.seconds},
                           {"command", repro_command(record)}};
  json_fields::Writer{out}("worst", j.worst);
  add_held(out, j);
  json_fields::Writer{out}.unless_empty("policy", record.policy);
  json_fields::Writer{out}.unless_empty("tuned", record.tuned);
  json_fields::Writer{out}.unless_empty("retuned", record.retuned);
  json_fields::Writer{out}.unless_empty("stage", j.stage);
  json_fields::Writer{out}.unless_empty("stages", j.stages);
  if (!explanation.contract.empty()) out["contracts_near"] = explanation.contract;
  if (!explanation.tried.empty()) out["tried"] = explanation.tried;
  if (!explanation.differs.empty() || !explanation.looks_like.empty()) {
    out["differs"] = explanation.differs;
    out["looks_like"] = explanation.looks_like;
    for (const CaseExplanation::Value& v : explanation.values)
      out["values"].push_back(
          {{"place", v.place}, {"expected", encoded(v.expected)}, {"actual", encoded(v.actual)}});
    for (const auto& [name, value] : explanation.terms) out["bound_terms"][name] = encoded(value);
  }
  return one_line(out);
}

}  // namespace samestate

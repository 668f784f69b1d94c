#include "reports/text/mutants_json.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "fixtures/json_syntax.h"
#include "harness/records/hash.h"
#include "reference/error.h"

namespace samestate {
namespace {

using MutantsJson = nlohmann::json;

MutantsJson json_of(const MutantRow& row) {
  MutantsJson out = {{"bug", row.bug},        {"name", row.name},       {"system", row.system},
                     {"form", row.form},      {"summary", row.summary}, {"equivalent", row.equivalent},
                     {"killed", row.killed},  {"gate", row.gate},       {"case", row.line},
                     {"reason", row.reason},  {"cases", row.cases},     {"planned", row.planned},
                     {"seconds", row.seconds}};
  // JSON has no infinity.
  out["ratio"] = std::isfinite(row.ratio) ? MutantsJson(row.ratio) : MutantsJson("inf");
  for (const RuleVerdict& v : row.rules) {
    out["rules"][v.rule] = {
        {"killed", v.killed}, {"tests", v.tests}, {"rejected", v.rejected}, {"false_alarms", v.false_alarms}};
  }
  return out;
}

/// Returns a field of an object; throws Error if it is missing or has another type.
template <class Value>
Value field(const MutantsJson& object, const char* name) {
  if (!object.is_object() || !object.contains(name)) throw Error(fmt::format("no field '{}'", name));
  try {
    return object[name].get<Value>();
  } catch (const MutantsJson::exception&) {
    throw Error(fmt::format("field '{}' is {}, of another type", name, object[name].dump()));
  }
}

MutantRow row_of(const MutantsJson& object) {
  const auto text = [&](const char* name) { return field<std::string>(object, name); };
  MutantRow row{text("bug"),
                text("name"),
                text("system"),
                text("form"),
                text("summary"),
                text("equivalent"),
                field<bool>(object, "killed"),
                text("gate"),
                text("case"),
                text("reason"),
                field<std::int64_t>(object, "cases"),
                field<std::int64_t>(object, "planned"),
                0.0,
                field<double>(object, "seconds"),
                {}};
  row.ratio = object.contains("ratio") && object["ratio"] == "inf" ? std::numeric_limits<double>::infinity()
                                                                   : field<double>(object, "ratio");
  if (!object.contains("rules")) return row;
  if (!object["rules"].is_object()) throw Error("field 'rules' is no object");
  for (const auto& [rule, verdict] : object["rules"].items()) {
    row.rules.push_back({rule, field<bool>(verdict, "killed"), field<std::int64_t>(verdict, "tests"),
                         field<std::int64_t>(verdict, "rejected"),
                         field<std::int64_t>(verdict, "false_alarms")});
  }
  return row;
}

std::string shard_of(const MutantPart& part) { return fmt::format("{}/{}", part.shard, part.shards); }

void check_alike(const NamedMutants& a, const NamedMutants& b) {
  const auto same = [&](const std::string& what, const std::string& x, const std::string& y) {
    if (x == y) return;
    throw Error(fmt::format(
        "{} and {} are not of one run: {} is '{}' in the first and '{}' in the second; merge the shards "
        "of one command",
        a.name, b.name, what, x, y));
  };
  same("the number of shards", std::to_string(a.part.shards), std::to_string(b.part.shards));
  same("the options", MutantsJson(a.part.options).dump(), MutantsJson(b.part.options).dump());
  same("the list of mutants", a.part.plan, b.part.plan);
  same("the number of mutants", std::to_string(a.part.total), std::to_string(b.part.total));
}

}  // namespace

std::string mutants_json(const MutantTable& table, const MutantSummary& summary, const MutantPart& part) {
  MutantsJson out = {{"killed", summary.score.killed},
                     {"all", summary.score.all},
                     {"equivalent", summary.equivalent},
                     {"score", summary.score.percent()},
                     {"mutants", MutantsJson::array()}};
  for (const MutantRow& row : table.rows) out["mutants"].push_back(json_of(row));
  for (const NotModelledRow& row : table.not_modelled) out["not_modelled"][row.bug] = row.reason;
  out["part"] = {{"version", part.version}, {"shard", part.shard}, {"shards", part.shards},
                 {"total", part.total},     {"plan", part.plan},   {"options", part.options},
                 {"places", part.places}};
  return out.dump(2) + "\n";
}

std::string mutant_line(const MutantRow& row) { return json_of(row).dump(); }

MutantRow parse_mutant_line(const std::string& line) {
  const MutantsJson json = MutantsJson::parse(line, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) throw Error("no JSON: " + line.substr(0, 80));
  return row_of(json);
}

NamedMutants parse_mutants(const std::string& name, const std::string& text) {
  const MutantsJson json = MutantsJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded())
    throw Error(fmt::format(
        "{}: no JSON, or cut: {}; its shard was killed, or the disk was full: run that shard again", name,
        json_error(text)));
  try {
    NamedMutants out{name, {}, {}};
    const MutantsJson rows = field<MutantsJson>(json, "mutants");
    if (!rows.is_array()) throw Error("field 'mutants' is no list");
    for (const MutantsJson& row : rows) out.table.rows.push_back(row_of(row));
    const MutantsJson part = field<MutantsJson>(json, "part");
    MutantPart& of = out.part;
    of.version = field<std::string>(part, "version");
    of.shard = field<std::int64_t>(part, "shard");
    of.shards = field<std::int64_t>(part, "shards");
    of.total = field<std::int64_t>(part, "total");
    of.plan = field<std::string>(part, "plan");
    of.options = field<std::map<std::string, std::string>>(part, "options");
    of.places = field<std::vector<std::int64_t>>(part, "places");
    if (of.places.size() != out.table.rows.size())
      throw Error(fmt::format("{} places of {} mutants", of.places.size(), out.table.rows.size()));
    if (of.shard < 0 || of.shard >= of.shards) throw Error("shard " + shard_of(of));
    return out;
  } catch (const Error& error) {
    throw Error(
        fmt::format("{}: {}; name a file that `samestate mutants --json` printed", name, error.what()));
  }
}

NamedMutants merge_mutant_tables(const std::vector<NamedMutants>& files, const std::string& version) {
  std::map<std::int64_t, const NamedMutants*> shards;
  std::map<std::int64_t, const MutantRow*> rows;
  if (files.empty()) throw Error("no table of mutants to merge");
  for (const NamedMutants& file : files) {
    if (file.part.version != version) {
      throw Error(
          fmt::format("{}: written by samestate {}, and this is {}; merge it with the one that wrote it",
                      file.name, file.part.version, version));
    }
    check_alike(files.front(), file);
    const auto [known, fresh] = shards.emplace(file.part.shard, &file);
    if (!fresh) {
      throw Error(fmt::format("shard {} is in {} and in {}; give each shard once", shard_of(file.part),
                              known->second->name, file.name));
    }
    for (std::size_t i = 0; i < file.part.places.size(); ++i) {
      const std::int64_t place = file.part.places[i];
      if (place < 0 || place >= file.part.total || !rows.emplace(place, &file.table.rows[i]).second) {
        throw Error(fmt::format("{}: mutant {} is not of shard {} or stands twice; run that shard again",
                                file.name, file.table.rows[i].name, shard_of(file.part)));
      }
    }
  }
  const MutantPart& first = files.front().part;
  for (std::int64_t i = 0; i < first.shards; ++i) {
    if (!shards.contains(i))
      throw Error(fmt::format("shard {}/{} is missing, {} of {} are there; name its file too", i,
                              first.shards, shards.size(), first.shards));
  }
  if (std::ssize(rows) != first.total) {
    throw Error(fmt::format("{} of {} mutants are in the files: a shard was interrupted; run it again",
                            rows.size(), first.total));
  }
  NamedMutants out{"", {}, first};
  out.part.shard = 0;
  out.part.shards = 1;
  out.part.places.clear();
  PlanHash hash;
  for (const auto& [place, row] : rows) {
    out.part.places.push_back(place);
    out.table.rows.push_back(*row);
    hash.add(row->name, "");
  }
  if (hash.text() != first.plan)
    throw Error(
        "the mutants of the files are not those of their list: a file was changed; run the shards again");
  return out;
}

}  // namespace samestate

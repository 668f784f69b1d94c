#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "fixtures/json_syntax.h"
#include "reference/error.h"
#include "reports/page/html.h"
#include "reports/page/html_table.h"
#include "reports/records/summary.h"
#include "reports/records/surprise.h"
#include "reports/text/escape.h"

/// Cases of the gate, evidence of devices, and the listings of other verbs.
namespace samestate {
namespace {

constexpr std::size_t kMostSurprises = 100;

std::string verdict_table(const Summary& summary) {
  std::string out =
      "<div class=\"scroll\"><table><thead><tr><th><button>verdict</button></th><th "
      "class=\"n\"><button>cases</button></th><th></th></tr></thead><tbody>\n";
  for (std::size_t i = 0; i < kVerdictCount; ++i) {
    if (summary.counts[i] == 0) continue;
    const auto verdict = static_cast<Verdict>(i);
    // If the lowest value of a meter is the best one, it is yellow above `low` and red above `high`.
    const char* colour = verdict == Verdict::pass ? ""
                         : is_failure(verdict)    ? " optimum=\"0\" low=\"0.25\" high=\"0.5\""
                                                  : " optimum=\"0\" low=\"0.5\"";
    out += fmt::format(
        "<tr><td>{0}</td><td class=\"n\" data-v=\"{1}\">{1}</td><td><meter min=\"0\" max=\"{2}\"{3} "
        "value=\"{1}\">{1} of {2}</meter></td></tr>\n",
        name_of(verdict), summary.counts[i], summary.cases, colour);
  }
  return out + "</tbody></table></div>\n";
}

/// Returns one row per case, with its group.
std::string case_table(std::span<const Record> records, const std::vector<Surprise>& surprises) {
  std::vector<HtmlTable::Column> columns = {
      {"case"},
      {"verdict"},
      {"tail", true, "0 is the median of the case's group, 1 its ninth decile"},
      {"ratio", true, "error over bound; above 1 fails"},
      {"group's median", true, "ratio; - in a group of fewer than 8"},
      {"group", true, "cases of the same system, form, contract, law and gate"}};
  for (const char* name : {"gate", "kernel", "contract", "regime", "law", "what was found", "repeat with"})
    columns.push_back({name});
  HtmlTable table(std::move(columns), /*stacked=*/true);
  for (std::size_t i = 0; i < std::min(kMostSurprises, surprises.size()); ++i) {
    const Surprise& surprise = surprises[i];
    const Record& r = records[surprise.record];
    table.row();
    table.copy(repro_command(r));
    table.text(name_of(r.judgement.verdict), tone_of(r.judgement.verdict));
    table.measured(std::isnan(surprise.median) ? surprise.median : surprise.tail);
    table.number(r.judgement.ratio);
    table.measured(surprise.median);
    table.count(surprise.group);
    table.text(r.judgement.gate);
    table.text(r.kernel);
    table.text(r.contract);
    table.text(r.regime);
    table.text(r.law);
    table.text(judgement_line(r.judgement), "wide");
    table.command(repro_command(r));
  }
  return table.html(surprises.size() > 10);
}

/// Lists the cases in the tails of their groups, and separately the groups that attain their bound.
std::string surprise_tables(std::span<const Record> records) {
  const Surprises surprises = surprises_of(records);
  std::string out;
  if (!surprises.ranked.empty()) {
    out +=
        fmt::format(
            "<details><summary>What stands out from its group <span class=\"dim\">{} of {}</span></summary>"
            "<p>{}</p>",
            std::min(kMostSurprises, surprises.ranked.size()), surprises.ranked.size(), kSurpriseMeaning) +
        case_table(records, surprises.ranked) + "</details>\n";
  }
  if (surprises.attained.empty()) return out;
  HtmlTable table({{"system"},
                   {"form"},
                   {"contract"},
                   {"law"},
                   {"cases", true},
                   {"least ratio", true},
                   {"largest ratio", true}});
  for (const AttainedGroup& group : surprises.attained) {
    table.row();
    for (const std::string* text : {&group.system, &group.form, &group.contract, &group.law})
      table.text(*text);
    table.count(group.cases);
    table.number(group.least);
    table.number(group.largest);
  }
  return out +
         fmt::format(
             "<details><summary>Attained bounds <span class=\"dim\">{} cases</span></summary><p>{}.</p>",
             surprises.attained_cases(), attained_line(surprises)) +
         table.html() + "</details>\n";
}

/// Counts cases by form and contract (columns) and regime (rows), with one table per system.
std::string coverage(std::span<const Record> records) {
  struct Cell {
    std::int64_t judged = 0;
    std::int64_t failed = 0;
    std::int64_t cases = 0;
  };
  struct Grid {
    std::set<std::string> columns;
    std::map<std::string, std::map<std::string, Cell>> rows;
    std::int64_t cases = 0;
    std::int64_t failed = 0;
  };
  std::map<std::string, Grid> systems;
  for (const Record& r : records) {
    Grid& grid = systems[r.system];
    const std::string column = r.form + " " + r.contract;
    grid.columns.insert(column);
    Cell& cell = grid.rows[r.regime][column];
    const Verdict v = r.judgement.verdict;
    const bool failed = is_failure(v);
    ++cell.cases;
    cell.judged += v == Verdict::pass || failed ? 1 : 0;
    cell.failed += failed ? 1 : 0;
    ++grid.cases;
    grid.failed += failed ? 1 : 0;
  }
  std::string out =
      "<h3>What was covered</h3>\n<p>Judged cases by regime (rows), form and contract (columns); a number "
      "with / has failures before it, 0 was run and never judged, a dot was not run.</p>\n";
  for (const auto& [system, grid] : systems) {
    out += fmt::format(
        "<details><summary>{} <span class=\"dim\">{} cases, {} failed</span></summary><div class=\"scroll "
        "cover\"><table><thead><tr><th><button>regime</button></th>",
        html_escaped(system), grid.cases, grid.failed);
    for (const std::string& column : grid.columns)
      out += fmt::format("<th class=\"n\"><button>{}</button></th>", html_escaped(column));
    out += "</tr></thead><tbody>\n";
    for (const auto& [regime, cells] : grid.rows) {
      out += fmt::format("<tr><td>{}</td>", html_escaped(regime));
      for (const std::string& column : grid.columns) {
        const auto found = cells.find(column);
        if (found == cells.end()) {
          out += "<td class=\"n dim\" data-v=\"-1\">·</td>";
        } else if (found->second.failed > 0) {
          out += fmt::format("<td class=\"n bad\" data-v=\"{1}\"><strong>{0}/{1}</strong></td>",
                             found->second.failed, found->second.judged);
        } else {
          out += fmt::format("<td class=\"n{1}\" data-v=\"{0}\">{0}</td>", found->second.judged,
                             found->second.judged == 0 ? " warn" : "");
        }
      }
      out += "</tr>\n";
    }
    out += "</tbody></table></div></details>\n";
  }
  return out;
}

/// Returns a cell of a listing: `{"killed": true, "rejected": 3, "tests": 9}` is the verdict of a public
/// rule.
std::string cell_text(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_null()) return "";
  if (value.is_object() && value.contains("killed"))
    return value["killed"] == true    ? "killed"
           : value["killed"] == false ? "missed"
                                      : cell_text(value["killed"]);
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Columns of a listing are in alphabetical order, or in that of the record, but a reader wants the verdict
/// next to the name. Columns that are not named here keep their order in between.
std::size_t place_of_column(const std::string& name, const std::vector<nlohmann::ordered_json>& rows) {
  static constexpr std::array<std::string_view, 6> kFirst = {"bug",    "id",      "name",
                                                             "killed", "verdict", "outcome"};
  static constexpr std::array<std::string_view, 11> kLast = {"gate",    "cases", "ratio",      "summary",
                                                             "system",  "form",  "equivalent", "planned",
                                                             "seconds", "case",  "reason"};
  const auto head = std::find(kFirst.begin(), kFirst.end(), name);
  if (head != kFirst.end()) return static_cast<std::size_t>(head - kFirst.begin());
  // For mutants, anything in neither list is a public rule.
  const bool mutants = !rows.empty() && rows.front().contains("bug");
  const auto tail = mutants ? std::find(kLast.begin(), kLast.end(), name) : kLast.end();
  return tail == kLast.end() ? kFirst.size()
                             : kFirst.size() + 1 + static_cast<std::size_t>(tail - kLast.begin());
}

}  // namespace

std::string html_gate(const ReportData& data, const std::string& ratio_svg) {
  if (data.records.empty()) return "";
  const Summary summary = summarise(data.records);
  std::string out = "<section id=\"gate\"><h2>Gate</h2>\n" + verdict_table(summary);
  out += html_failures(data);
  out += "<h3>Is the bound tight?</h3>\n";
  if (ratio_svg.empty()) {
    out += "<p class=\"dim\">No ratio above 0 to draw, or drawn without plots.</p>\n";
  } else {
    out += "<div class=\"grid\">" + html_figure(data.ratios, ratio_svg) + "</div>\n";
  }
  HtmlTable regimes({{"regime"},
                     {"judged", true, "of all systems that have a regime of that name"},
                     {"ratio p50", true},
                     {"p90", true},
                     {"max", true}});
  for (const RegimeSpread& row : summary.regimes) {
    regimes.row();
    regimes.text(row.regime);
    regimes.count(row.judged);
    for (const double value : {row.ratio.p50, row.ratio.p90, row.ratio.max}) regimes.number(value);
  }
  if (!regimes.empty())
    out += "<details><summary>Ratio by regime</summary>" + regimes.html() + "</details>\n";
  HtmlTable stages({{"system"},
                    {"stage", false, "judged from what the kernel itself gave to it"},
                    {"judged", true},
                    {"failures", true},
                    {"p50", true},
                    {"p90", true},
                    {"max", true, "error over bound; 0: the twin, bit for bit or nearly"}});
  for (const StageSpread& row : summary.stages) {
    stages.row();
    stages.text(row.system);
    stages.text(row.stage, row.failures > 0 ? tone_of(Verdict::fail) : "");
    for (const std::int64_t value : {row.judged, row.failures}) stages.count(value);
    for (const double value : {row.ratio.p50, row.ratio.p90, row.ratio.max}) stages.number(value);
  }
  if (!stages.empty())
    out += "<details><summary>Stages of layers</summary>" + stages.html(true) + "</details>\n";
  HtmlTable groups({{"system"},
                    {"form"},
                    {"contract"},
                    {"cases", true},
                    {"judged", true},
                    {"failures", true},
                    {"worst ratio", true, "error over bound; 1 where an output is rounded once"},
                    {"typical ratio", true, "median over the cases of the median over a case's rows"}});
  for (const Group& group : summary.groups) {
    groups.row();
    groups.text(group.system);
    groups.text(group.form);
    groups.text(group.contract);
    for (const std::int64_t value : {group.cases, group.judged, group.failures}) groups.count(value);
    groups.number(group.worst_ratio);
    groups.number(group.median_ratio);
  }
  out += "<details><summary>By system, form and contract</summary>" + groups.html(true) + "</details>\n";
  out += surprise_tables(data.records);
  HtmlTable rest({{"verdict"}, {"reason"}, {"cases", true}});
  for (const NotJudged& row : summary.not_judged) {
    rest.row();
    rest.text(name_of(row.verdict), "tag warn");
    rest.text(row.reason);
    rest.count(row.cases);
  }
  if (!rest.empty()) out += "<details><summary>Not judged, and why</summary>" + rest.html() + "</details>\n";
  return out + coverage(data.records) + "</section>\n";
}

std::string html_evidence(const ReportInput& input, const std::string& timings) {
  if (input.evidence.empty() && timings.empty()) return "";
  HtmlTable table({{"kernel"},
                   {"evidence", false, "fresh while the kernel sources are those that ran"},
                   {"passed", true},
                   {"failed", true},
                   {"device"},
                   {"driver"},
                   {"toolkit"},
                   {"sources that ran"},
                   {"file"}},
                  /*stacked=*/true);
  for (const Evidence& e : input.evidence) {
    const bool fresh = is_fresh(e.kernel_sources, input.kernel_sources, e.kernel);
    table.row();
    table.text(e.kernel);
    table.text(fresh ? "fresh" : "stale", fresh ? "tag good" : "tag warn");
    table.count(e.passed);
    table.count(e.failed);
    for (const std::string* value : {&e.device, &e.driver, &e.toolkit, &e.kernel_sources, &e.file})
      table.text(*value);
  }
  return "<section id=\"evidence\"><h2>Evidence</h2>\n<p>Recorded runs on devices. Stale: the sources of the "
         "kernel were changed since, so the run vouches for something else.</p>\n" +
         (input.evidence.empty() ? "" : table.html()) + timings + "</section>\n";
}

std::string html_listing(const std::string& json, const std::string& id, const std::string& title,
                         const std::string& intro) {
  using Json = nlohmann::ordered_json;
  const Json parsed = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded())
    throw Error(fmt::format("--{}: not JSON: {}; give it what `samestate {} --json` printed", id,
                            json_error(json), id));
  const Json* rows = &parsed;
  if (parsed.is_object()) {
    for (const auto& [key, value] : parsed.items()) {
      if (value.is_array() && rows == &parsed) rows = &value;
    }
  }
  const bool objects = rows->is_array() && std::all_of(rows->begin(), rows->end(),
                                                       [](const Json& row) { return row.is_object(); });
  if (!objects)
    throw Error(
        fmt::format("--{}: not a JSON array of objects; give it what `samestate {} --json` printed", id, id));
  const char* key = id == "mutants" ? "killed" : "verdict";
  if (rows->empty() ||
      !std::all_of(rows->begin(), rows->end(), [&](const Json& row) { return row.contains(key); }))
    throw Error(
        fmt::format("--{}: rows without '{}'; give it what `samestate {} --json` printed", id, key, id));
  std::vector<Json> flat;
  std::vector<std::string> names;
  std::map<std::string, bool> number;
  for (const Json& row : *rows) {
    Json cells = Json::object();
    for (const auto& [key, value] : row.items()) {
      // The verdicts of several rules in one object become one column each.
      if (value.is_object() && !value.empty() && value.begin()->is_object()) {
        for (const auto& [rule, verdict] : value.items()) cells[rule] = verdict;
      } else {
        cells[key] = value;
      }
    }
    for (const auto& [key, value] : cells.items()) {
      if (std::find(names.begin(), names.end(), key) == names.end()) {
        names.push_back(key);
        number[key] = true;
      }
      if (!value.is_number() && value != "inf" && value != "nan") number[key] = false;
    }
    flat.push_back(std::move(cells));
  }
  std::string score;
  for (const std::string& name : names) {
    const auto kills = std::count_if(flat.begin(), flat.end(), [&](const Json& row) {
      const auto cell = row.find(name);
      return cell != row.end() &&
             (name == "killed" ? *cell == true : cell->is_object() && cell_text(*cell) == "killed");
    });
    const bool verdicts = name == "killed" || std::any_of(flat.begin(), flat.end(), [&](const Json& row) {
                            const auto cell = row.find(name);
                            return cell != row.end() && cell->is_object() && cell->contains("killed");
                          });
    // Not every mutant is tried with every rule.
    const auto shown = std::count_if(flat.begin(), flat.end(), [&](const Json& row) {
      const auto cell = row.find(name);
      return cell != row.end() && (name == "killed" || (cell->is_object() && cell_text(*cell) != ""));
    });
    if (verdicts)
      score += fmt::format("{}{} {} of {}", score.empty() ? "Killed by " : ", by ",
                           name == "killed" ? "this gate" : name, kills, shown);
  }
  if (id == "mutants") {
    const bool rules = score.find(", by ") != score.npos;
    score += rules
                 ? ". The columns named after public projects say what the tolerances of their tests make of "
                   "the same kernel, where it was shown to them"
                 : ". Recorded without --public: no rules of public projects stand beside it";
  }
  std::stable_sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    return place_of_column(a, flat) < place_of_column(b, flat);
  });
  std::vector<HtmlTable::Column> columns;
  for (const std::string& name : names) columns.push_back({name, number[name]});
  HtmlTable table(columns);
  for (const Json& row : flat) {
    table.row();
    for (const std::string& name : names) {
      const auto cell = row.find(name);
      if (cell == row.end()) {
        table.text("");
      } else if (cell->is_number_integer() && number[name]) {
        table.count(cell->get<std::int64_t>());
      } else if (cell->is_number()) {
        table.number(cell->get<double>());
      } else if (number[name]) {
        table.number(*cell == "inf" ? std::numeric_limits<double>::infinity()
                                    : std::numeric_limits<double>::quiet_NaN());
      } else {
        const std::string text = cell_text(*cell);
        const bool bad = text == "missed" || text == "survived" || text == "failed";
        table.text(text, bad ? "bad" : text.size() > 60 ? "wide" : text.size() < 24 ? "c" : "");
      }
    }
  }
  return fmt::format("<section id=\"{}\"><h2>{}</h2>\n<p>{} {} rows. {}</p>\n", id, html_escaped(title),
                     html_escaped(intro), flat.size(), html_escaped(score.empty() ? score : score + ".")) +
         table.html(true) + "</section>\n";
}

}  // namespace samestate

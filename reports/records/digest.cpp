#include "reports/records/digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "fixtures/json_syntax.h"
#include "reference/error.h"
#include "reports/records/files.h"
#include "reports/records/json_fields.h"
#include "reports/records/timing_fields.h"

namespace samestate {
namespace {

using json_fields::Json;
using json_fields::Reader;
using json_fields::Writer;

constexpr std::string_view kFormat = "samestate-board-1";

/// JSON has no infinity.
Json number(double x) { return std::isfinite(x) ? Json(x) : std::isinf(x) ? Json("inf") : Json(nullptr); }

/// Visits the fields of a timing that a report shows: of its judgement these are the verdict, its gate and
/// the ratio.
template <class AnyTiming, class Visit>
void visit_timed(AnyTiming& timing, Visit&& visit) {
  auto& record = timing.timed.record;
  visit("line", record.line);
  visit("kernel", record.kernel);
  visit("system", record.system);
  visit("form", record.form);
  visit("contract", record.contract);
  visit.unless_empty("options", record.options);
  visit("device", timing.device);
  visit.unless_empty("driver", timing.driver);
  visit.unless_empty("toolkit", timing.toolkit);
  visit.unless_empty("sources", timing.kernel_sources);
  visit.unless_empty("date", timing.date);
  visit("verdict", record.judgement.verdict);
  visit("gate", record.judgement.gate);
  visit("ratio", record.judgement.ratio);
  visit_timing(timing.timed, visit);
}

Json timing_object(const TimedEvidence& timing) {
  Json object = Json::object();
  visit_timed(timing, Writer{object});
  return object;
}

/// Rows of values under names that are written once, since names are as long as the values; null if a timing
/// has no such field.
struct Columns {
  explicit Columns(const std::vector<TimedEvidence>& timings) {
    for (const TimedEvidence& timing : timings) {
      objects.push_back(timing_object(timing));
      for (const auto& [name, value] : objects.back().items()) {
        if (std::ranges::find(names, name) == names.end()) names.push_back(name);
      }
    }
  }

  [[nodiscard]] Json row(const Json& object) const {
    Json values = Json::array();
    for (const std::string& name : names) values.push_back(object.value(name, Json()));
    return values;
  }

  std::vector<Json> objects;
  std::vector<std::string> names;
};

/// Returns the objects in such rows, or those of an older digest.
std::vector<Json> timing_objects(const Json& timings) {
  if (timings.is_array()) return {timings.begin(), timings.end()};
  const auto names = timings.at("fields").get<std::vector<std::string>>();
  std::vector<Json> objects;
  for (const Json& row : timings.at("rows")) {
    Json object = Json::object();
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (const Json& value = row.at(i); !value.is_null()) object[names[i]] = value;
    }
    objects.push_back(std::move(object));
  }
  return objects;
}

TimedEvidence timing_of(const Json& object) {
  if (!object.is_object()) throw Error("no object");
  TimedEvidence timing;
  visit_timed(timing, Reader{object});
  timing.timed.record.device =
      timing.device == "cpu" || timing.device == "elsewhere" ? timing.device : "cuda";
  return timing;
}

}  // namespace

std::string board_json(const Board& board, const std::vector<BoardChange>& changes) {
  Json out = {
      {"format", kFormat}, {"rows", Json::array()}, {"changes", Json::array()}, {"notes", board.notes}};
  for (const BoardRow& row : board.rows) {
    Json defects = Json::array();
    for (const BoardDefect& d : row.defects)
      defects.push_back({{"what", d.what}, {"reason", d.reason}, {"lines", d.lines}});
    out["rows"].push_back({{"kernel", row.kernel},
                           {"versions", row.versions},
                           {"device", row.device},
                           {"contract", row.contract},
                           {"card", row.nearest() ? "nearest" : "exact"},
                           {"date", row.date},
                           {"cases", row.cases},
                           {"planned", row.planned},
                           {"pass", row.passed},
                           {"fail", row.failed},
                           {"vacuous", row.vacuous},
                           {"unsupported", row.unsupported},
                           {"median", number(row.median)},
                           {"worst", number(row.worst)},
                           {"worst_line", row.worst_line},
                           {"order", row.order},
                           {"beyond_twin", row.beyond},
                           {"defects", std::move(defects)}});
    Json& made = out["rows"].back();
    const Writer write{made};
    write.unless_empty("driver", row.driver);
    write.unless_empty("toolkit", row.toolkit);
    write.unless_empty("sources", row.sources);
  }
  if (board.incomplete > 0) out["incomplete"] = board.incomplete;
  for (const BoardChange& c : changes)
    out["changes"].push_back({{"kernel", c.kernel},
                              {"device", c.device},
                              {"contract", c.contract},
                              {"text", c.text},
                              {"worse", c.worse}});
  const auto dumped = [](const Json& json, int indent) {
    return json.dump(indent, ' ', false, Json::error_handler_t::replace);
  };
  std::string text = dumped(out, 1);
  if (!board.timings.empty()) {
    const Columns columns(board.timings);
    text.resize(text.rfind('\n'));
    text += ",\n \"timings\": {\n  \"fields\": " + dumped(columns.names, -1) + ",\n  \"rows\": [";
    for (const Json& object : columns.objects)
      text += (&object == &columns.objects.front() ? "\n   " : ",\n   ") + dumped(columns.row(object), -1);
    text += "\n  ]\n }\n}";
  }
  return text + "\n";
}

Board parse_board(const std::string& text, const std::string& name) {
  const Json all = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (all.is_discarded())
    throw Error(
        fmt::format("{}: no board, since it is not JSON: {}; name a folder of records, or what `samestate "
                    "board --json` printed",
                    name, json_error(text)));
  if (!all.is_object() || all.value("format", Json()) != kFormat || !all.contains("rows"))
    throw Error(fmt::format(
        "{}: no board; name a folder of records, or what `samestate board --json` printed", name));
  Board board;
  try {
    const auto real = [](const Json& x) {
      if (x == "inf") return std::numeric_limits<double>::infinity();
      return x.is_null() ? std::numeric_limits<double>::quiet_NaN() : x.get<double>();
    };
    for (const Json& x : all.at("rows")) {
      BoardRow row;
      row.kernel = x.at("kernel").get<std::string>(), row.versions = x.at("versions").get<std::string>();
      row.device = x.at("device").get<std::string>(), row.contract = x.at("contract").get<std::string>();
      row.date = x.at("date").get<std::string>();
      row.cases = x.at("cases").get<std::int64_t>(), row.planned = x.at("planned").get<std::int64_t>();
      row.passed = x.at("pass").get<std::int64_t>(), row.failed = x.at("fail").get<std::int64_t>();
      row.vacuous = x.at("vacuous").get<std::int64_t>(),
      row.unsupported = x.at("unsupported").get<std::int64_t>();
      row.beyond = x.at("beyond_twin").get<std::int64_t>();
      row.median = real(x.at("median")), row.worst = real(x.at("worst"));
      row.worst_line = x.at("worst_line").get<std::string>();
      row.order = x.value("order", std::int64_t{0});
      row.driver = x.value("driver", ""), row.toolkit = x.value("toolkit", "");
      row.sources = x.value("sources", "");
      for (const Json& d : x.at("defects"))
        row.defects.push_back({d.at("what").get<std::string>(), d.at("reason").get<std::string>(),
                               d.at("lines").get<std::vector<std::string>>()});
      board.rows.push_back(std::move(row));
    }
    if (all.contains("notes")) board.notes = all["notes"].get<std::vector<std::string>>();
    board.incomplete = all.value("incomplete", std::int64_t{0});
  } catch (const nlohmann::json::exception& error) {
    throw Error(fmt::format("{}: a damaged board, row {}: {}; make it anew with `samestate board --json`",
                            name, board.rows.size(), error.what()));
  }
  if (all.contains("timings")) {
    try {
      for (const Json& x : timing_objects(all["timings"])) board.timings.push_back(timing_of(x));
    } catch (const std::exception& error) {
      throw Error(
          fmt::format("{}: a damaged board, timing {}: {}; make it anew with `samestate board --json`", name,
                      board.timings.size(), error.what()));
    }
  }
  mark_newest(board);
  return board;
}

Board read_digest(const std::filesystem::path& path) {
  const std::optional<std::string> text = text_of(path);
  if (!text)
    throw Error(path.string() +
                ": cannot be read; name a folder of records, or what `samestate board --json` printed");
  return parse_board(*text, path.string());
}

std::vector<Digest> digests_in(const std::filesystem::path& folder) {
  std::vector<Digest> digests;
  std::error_code code;
  if (!std::filesystem::is_directory(folder, code)) return digests;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json" || !entry.is_regular_file(code)) continue;
    const std::optional<std::string> text = text_of(entry.path());
    const Json parsed = Json::parse(text.value_or(""), nullptr, /*allow_exceptions=*/false);
    // The file belongs to another program.
    if (!parsed.is_discarded() && !(parsed.is_object() && parsed.value("format", Json()) == kFormat))
      continue;
    digests.push_back({entry.path(), parse_board(text.value_or(""), entry.path().string())});
  }
  std::ranges::sort(digests, {}, &Digest::path);
  return digests;
}

}  // namespace samestate

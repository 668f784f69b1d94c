#include "reports/text/csv.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "reports/text/escape.h"

namespace samestate {
namespace {

using CsvRow = std::vector<DataTable::Cell>;

const std::vector<std::string> kRecordColumns = {
    "system",       "form",       "contract",    "regime",     "law",        "device",
    "kernel",       "verdict",    "gate",        "ratio",      "gate_error", "gate_bound",
    "sequence",     "head",       "token",       "channel",    "expected",   "actual",
    "row_ratio",    "head_ratio", "state_ratio", "hard_ratio", "twin_ratio", "median_ratio",
    "relative_rms", "rows",       "seconds",     "reason",     "line"};

void add_record(CsvRow& row, const Record& r) {
  const Judgement& j = r.judgement;
  for (const std::string* text : {&r.system, &r.form, &r.contract, &r.regime, &r.law, &r.device, &r.kernel})
    row.emplace_back(*text);
  row.emplace_back(std::string(name_of(j.verdict)));
  row.emplace_back(j.gate);
  for (const double value : {j.ratio, j.error, j.bound}) row.emplace_back(value);
  for (const std::int64_t place : {j.worst.sequence, j.worst.head, j.worst.token, j.worst.channel})
    row.emplace_back(place);
  for (const double value : {j.expected, j.actual, j.row_ratio, j.head_ratio, j.state_ratio, j.hard_ratio,
                             j.twin_ratio, j.median_ratio, j.relative_rms})
    row.emplace_back(value);
  row.emplace_back(j.rows);
  row.emplace_back(r.seconds);
  row.emplace_back(j.reason);
  row.emplace_back(r.line);
}

std::string csv_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return fmt::format("{}", value);
}

std::string field(const std::string& text) {
  std::string out = xml_safe(text);
  if (!out.empty() && std::string_view("=+-@\t\r").find(out.front()) != std::string_view::npos)
    out.insert(0, "'");
  if (out.find_first_of(",\"\r\n") == out.npos) return out;
  std::string quoted = "\"";
  for (const char c : out) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

}  // namespace

DataTable points_table(std::span<const SweepPoint> points, std::span<const std::string> sources) {
  DataTable table{
      "points",
      {"point", "file", "series", "curve", "x", "tokens", "size", "max_error", "rms_error", "rms_bound",
       "state_size", "state_max", "state_rms", "state_bound", "flops", "bytes", "condition"},
      {}};
  table.columns.insert(table.columns.end(), kRecordColumns.begin(), kRecordColumns.end());
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Measurement& m = points[i].measurement;
    CsvRow row = {static_cast<std::int64_t>(i), sources[points[i].source], m.series, m.curve, m.x, m.tokens};
    for (const double value : {m.size, m.max_error, m.rms_error, m.rms_bound, m.state_size, m.state_max,
                               m.state_rms, m.state_bound, m.flops, m.bytes, m.condition})
      row.emplace_back(value);
    add_record(row, m.record);
    table.rows.push_back(std::move(row));
  }
  return table;
}

DataTable profiles_table(std::span<const SweepPoint> points) {
  DataTable table{"profiles", {"point", "profile", "position", "error", "bound"}, {}};
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto add = [&](const char* name, const std::vector<ErrorAt>& profile) {
      for (const ErrorAt& at : profile)
        table.rows.push_back(
            {static_cast<std::int64_t>(i), std::string(name), at.position, at.error, at.bound});
    };
    add("token", points[i].measurement.by_token);
    add("chunk_position", points[i].measurement.by_chunk_position);
    add("head", points[i].measurement.by_head);
  }
  return table;
}

DataTable cases_table(std::span<const Record> records) {
  DataTable table{"cases", kRecordColumns, {}};
  for (const Record& record : records) {
    CsvRow row;
    add_record(row, record);
    table.rows.push_back(std::move(row));
  }
  return table;
}

DataTable timings_table(std::span<const TimedEvidence> timings) {
  DataTable table{"timings",
                  {"file",
                   "driver",
                   "toolkit",
                   "kernel_sources",
                   "B",
                   "T",
                   "Hk",
                   "Hv",
                   "dk",
                   "dv",
                   "chunk",
                   "heads",
                   "heads_judged",
                   "sizes",
                   "ranks",
                   "cuts",
                   "timed",
                   "median",
                   "p10",
                   "p90",
                   "samples",
                   "calls_per_sample",
                   "copies",
                   "bytes",
                   "operations",
                   "copy_rate",
                   "product_rate",
                   "ceilings",
                   "memory_floor",
                   "compute_floor",
                   "share",
                   "peer",
                   "peer_note",
                   "peer_median",
                   "peer_p10",
                   "peer_p90",
                   "peer_samples",
                   "peer_ratio"},
                  {}};
  table.columns.insert(table.columns.end(), kRecordColumns.begin(), kRecordColumns.end());
  for (const TimedEvidence& e : timings) {
    const TimedCase& t = e.timed;
    CsvRow row = {e.file, e.driver, e.toolkit, e.kernel_sources};
    for (const std::int64_t value : {t.B, t.T, t.Hk, t.Hv, t.dk, t.dv, t.chunk, t.heads, t.heads_judged})
      row.emplace_back(value);
    row.emplace_back(t.sizes);
    row.emplace_back(t.ranks);
    for (const std::string* text : {&t.cuts, &t.timed}) row.emplace_back(*text);
    for (const double value : {t.time.median, t.time.p10, t.time.p90}) row.emplace_back(value);
    for (const std::int64_t value : {t.time.samples, t.calls_per_sample, t.copies, t.bytes, t.operations})
      row.emplace_back(value);
    for (const double value : {t.copy_rate, t.product_rate}) row.emplace_back(value);
    row.emplace_back(t.ceilings);
    for (const double value : {t.memory_floor, t.compute_floor, t.share}) row.emplace_back(value);
    for (const std::string* text : {&t.peer, &t.peer_note}) row.emplace_back(*text);
    for (const double value : {t.peer_time.median, t.peer_time.p10, t.peer_time.p90}) row.emplace_back(value);
    row.emplace_back(t.peer_time.samples);
    row.emplace_back(t.peer_ratio);
    Record named = t.record;
    named.device = e.device;
    add_record(row, named);
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string csv_text(const DataTable& table) {
  std::string out;
  for (std::size_t i = 0; i < table.columns.size(); ++i) out += (i == 0 ? "" : ",") + table.columns[i];
  out += "\r\n";
  for (const CsvRow& row : table.rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i > 0) out += ',';
      if (const auto* text = std::get_if<std::string>(&row[i])) {
        out += field(*text);
      } else if (const auto* value = std::get_if<double>(&row[i])) {
        out += csv_number(*value);
      } else {
        out += fmt::format("{}", std::get<std::int64_t>(row[i]));
      }
    }
    out += "\r\n";
  }
  return out;
}

std::string json_text(std::span<const DataTable> tables) {
  // This is written by hand: a tree of a hundred thousand rows would take ten times the memory of its text.
  const auto string = [](const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  std::string out = "{";
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const DataTable& table = tables[t];
    out += fmt::format("{}\n{}: {{\"columns\": [", t == 0 ? "" : ",", string(table.name));
    for (std::size_t i = 0; i < table.columns.size(); ++i)
      out += (i == 0 ? "" : ", ") + string(table.columns[i]);
    out += "],\n\"rows\": [";
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      out += r == 0 ? "\n[" : ",\n[";
      for (std::size_t i = 0; i < table.rows[r].size(); ++i) {
        const DataTable::Cell& cell = table.rows[r][i];
        if (i > 0) out += ',';
        if (const auto* text = std::get_if<std::string>(&cell)) {
          out += string(*text);
        } else if (const auto* value = std::get_if<double>(&cell)) {
          out += std::isfinite(*value) ? csv_number(*value) : "\"" + csv_number(*value) + "\"";
        } else {
          out += fmt::format("{}", std::get<std::int64_t>(cell));
        }
      }
      out += ']';
    }
    out += "\n]}";
  }
  return out + "\n}\n";
}

}  // namespace samestate

#include "reports/records/json_lines.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "fixtures/json_syntax.h"
#include "reference/error.h"
#include "reports/records/files.h"
#include "reports/records/json_fields.h"
#include "reports/records/summary.h"
#include "reports/records/timing_fields.h"

namespace samestate {
namespace {

using json_fields::Json;
using json_fields::Reader;
using json_fields::Writer;

/// This is the only table of fields: it calls visit(name, field) for each member, for writing as well as for
/// reading.
template <class AnyRecord, class Visit>
void visit_subject(AnyRecord& record, Visit&& visit) {
  visit("line", record.line);
  visit("kernel", record.kernel);
  visit("system", record.system);
  visit("form", record.form);
  visit("contract", record.contract);
  visit("regime", record.regime);
  visit("law", record.law);
  visit("device", record.device);
  visit.unless_empty("options", record.options);
}

/// A device is cpu, cuda or elsewhere; a bench of samestate 0.1.0 wrote the name of its run's GPU here.
void read_subject(Record& record, const Reader& read) {
  visit_subject(record, read);
  if (record.device != "cpu" && record.device != "elsewhere") record.device = "cuda";
}

template <class AnyRecord, class Visit>
void visit_judgement(AnyRecord& record, Visit&& visit) {
  auto& judgement = record.judgement;
  visit("verdict", judgement.verdict);
  visit("gate", judgement.gate);
  visit("ratio", judgement.ratio);
  visit.possible(judgement);
  visit("error", judgement.error);
  visit("bound", judgement.bound);
  visit("worst", judgement.worst);
  visit("expected", judgement.expected);
  visit("actual", judgement.actual);
  visit("row_ratio", judgement.row_ratio);
  visit("head_ratio", judgement.head_ratio);
  visit("state_ratio", judgement.state_ratio);
  visit("hard_ratio", judgement.hard_ratio);
  visit("twin_ratio", judgement.twin_ratio);
  visit("median_ratio", judgement.median_ratio);
  visit("relative_rms", judgement.relative_rms);
  visit.unless_zero("sampled_ratio", judgement.sampled_ratio);
  visit("rows", judgement.rows);
  visit.unless_zero("held", judgement.held);
  visit.unless_zero("held_of", judgement.held_of);
  visit.unless_empty("held_which", judgement.held_which);
  visit.unless_empty("stage", judgement.stage);
  visit.unless_empty("stages", judgement.stages);
  visit("reason", judgement.reason);
  visit.unless_empty("policy", record.policy);
  visit("seconds", record.seconds);
  visit.unless_empty("after", record.after);
  visit.unless_empty("gpu", record.gpu);
  visit.unless_empty("outputs", record.outputs);
  visit.unless_empty("ran_by", record.ran_by);
  visit.unless_empty("spent", record.spent);
  visit.unless_empty("tuned", record.tuned);
  visit.unless_empty("retuned", record.retuned);
}

template <class AnyMeasurement, class Visit>
void visit_measurement(AnyMeasurement& m, Visit&& visit) {
  visit("series", m.series);
  visit("curve", m.curve);
  visit("x", m.x);
  visit("tokens", m.tokens);
  visit("size", m.size);
  visit("max_error", m.max_error);
  visit("rms_error", m.rms_error);
  visit("rms_bound", m.rms_bound);
  visit("state_size", m.state_size);
  visit("state_max", m.state_max);
  visit("state_rms", m.state_rms);
  visit("state_bound", m.state_bound);
  visit("flops", m.flops);
  visit("bytes", m.bytes);
  visit("condition", m.condition);
  visit("by_token", m.by_token);
  visit("by_chunk_position", m.by_chunk_position);
  visit("by_head", m.by_head);
}

template <class AnyRun, class Visit>
void visit_run(AnyRun& run, Visit&& visit) {
  visit("version", run.version);
  visit.unless_empty("date", run.date);
  visit("commit", run.commit);
  visit("device", run.device);
  visit.unless_empty("gpus", run.gpus);
  visit("driver", run.driver);
  visit("toolkit", run.toolkit);
  visit("kernel_sources", run.kernel_sources);
  visit.unless_empty("plugins", run.plugins);
  visit.unless_zero("planned", run.planned);
  auto& part = run.part;
  visit.unless_empty("verb", part.verb);
  visit.unless_zero("of_shard", part.cases);
  visit.unless_zero("total", part.total);
  visit.unless_empty("plan", part.plan);
  visit.unless_empty("options", part.options);
}

/// Returns "1/4"; empty for a run that is not one of several parts.
std::string shard_text(const RunPart& part) {
  return part.shards > 1 ? fmt::format("{}/{}", part.shard, part.shards) : "";
}

void read_shard(const std::string& text, RunPart& part) {
  if (text.empty()) return;
  const char* const end = text.data() + text.size();
  const auto [slash, first] = std::from_chars(text.data(), end, part.shard);
  if (first == std::errc{} && slash != end && *slash == '/') {
    const auto [last, second] = std::from_chars(slash + 1, end, part.shards);
    if (second == std::errc{} && last == end && part.shard >= 0 && part.shard < part.shards) return;
  }
  throw Error(fmt::format("field 'shard' is '{}', not I/N with I below N", text));
}

template <class AnyEnd, class Visit>
void visit_end(AnyEnd& end, Visit&& visit) {
  visit("seconds", end.seconds);
  visit("seed", end.seed);
  visit.unless_empty("not_complete", end.not_complete);
  visit.unless_empty("remarks", end.remarks);
  visit.unless_false("interrupted", end.interrupted);
  visit.unless_empty("not_started", end.not_started);
  visit.unless_empty("kinds", end.kinds);
  visit.unless_empty("looks_like", end.looks_like);
  visit.unless_zero("compared", end.compared);
  visit.unless_empty("notes", end.notes);
  visit.unless_empty("limits", end.limits);
  visit.unless_zero("left_out", end.left_out);
  visit.unless_empty("lacking", end.lacking);
}

void write_grown(Json& object, const std::vector<Grown>& grown) {
  for (const Grown& g : grown)
    object["grown"].push_back({{"case", g.number}, {"before", json_fields::encoded(g.before)}});
}

void read_grown(const Reader& read, std::vector<Grown>& grown) {
  if (!read.object.contains("grown")) return;
  const Json& rows = read.field("grown");
  if (!rows.is_array()) Reader::reject("grown", rows, "an array");
  for (const Json& row : rows) {
    if (!row.is_object()) Reader::reject("grown", row, "an object");
    const Reader inner{row};
    Grown g;
    inner("case", g.number);
    inner("before", g.before);
    grown.push_back(g);
  }
}

Json event(const char* name) { return {{"schema", kJsonLinesSchema}, {"event", name}}; }

Json point_object(const Measurement& measurement) {
  Json object = event("point");
  visit_measurement(measurement, Writer{object});
  visit_subject(measurement.record, Writer{object});
  visit_judgement(measurement.record, Writer{object});
  return object;
}

/// Bytes that are not UTF-8 (a kernel's message may contain anything) become U+FFFD.
std::string one_line(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

bool ends_inside_a_line(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file || file.tellg() == std::streampos(0)) return false;
  file.seekg(-1, std::ios::end);
  return file.get() != '\n';
}

/// The longest line of the project, a drift's profile by token, has about 10 kB: a device or a disk image
/// given by mistake must not fill the memory.
constexpr std::size_t kLongestLine = 64'000'000;

/// Reads a line as std::getline does, but stops after the longest length.
bool next_line(std::istream& file, std::string& line) {
  std::array<char, 1 << 16> part;
  line.clear();
  while (line.size() <= kLongestLine) {
    file.getline(part.data(), part.size());
    line.append(part.data(), static_cast<std::size_t>(file.gcount()));
    if (file.eof()) return !line.empty();
    if (!file.fail()) {
      line.pop_back();  // the end of the line was counted
      return true;
    }
    if (file.gcount() == 0) return false;
    file.clear();
  }
  return true;
}

/// A run that is being read.
struct OpenRun {
  std::map<std::int64_t, Record> cases;  ///< cases started and not ended
  std::int64_t ended = 0;
  bool finished = false;
};

void close_run(OpenRun& open, RecordFile& result) {
  const std::int64_t planned = result.runs.empty() ? 0 : result.runs.back().planned;
  if (!open.finished && open.ended < planned)
    result.ends.back().not_complete =
        fmt::format("The process was ended before {} of {} cases were.", planned - open.ended, planned);
  for (auto& [number, record] : open.cases) {
    result.places.push_back({result.runs.empty() ? 0 : result.runs.size() - 1, number, false});
    record.judgement.verdict = Verdict::crash;
    record.judgement.gate = "crash";
    record.judgement.reason =
        "started and never ended: the process died in it or in a case beside it, or was killed";
    result.records.push_back(std::move(record));
  }
  open = {};
}

Measurement point_of(const Reader& read) {
  Measurement m;
  visit_measurement(m, read);
  visit_subject(m.record, read);
  visit_judgement(m.record, read);
  return m;
}

void read_event(const Json& object, OpenRun& open, RecordFile& result) {
  if (!object.is_object() || !object.contains("schema")) {
    throw Error("no field 'schema': not a record of samestate; name a file that --jsonl wrote");
  }
  if (object["schema"] != kJsonLinesSchema) {
    throw Error(fmt::format("schema {}, this version reads {}; use the samestate that wrote it",
                            object["schema"].dump(), kJsonLinesSchema));
  }
  const Reader read{object};
  std::string kind;
  read("event", kind);
  if (kind == "run") {
    close_run(open, result);
    Run run;
    visit_run(run, read);
    std::string shard;
    read.unless_empty("shard", shard);
    read_shard(shard, run.part);
    result.runs.push_back(std::move(run));
    result.ends.emplace_back();
    return;
  }
  if (kind == "finish") {
    if (result.runs.empty())
      throw Error("the end of a run before its first line; name a file that --jsonl wrote");
    std::int64_t exit = 0;
    read("exit", exit);
    RunEnd& end = result.ends.back();
    visit_end(end, read);
    read_grown(read, end.grown);
    end.exit = static_cast<int>(exit);
    end.finished = true;
    open.finished = true;
    return;
  }
  if (kind == "point") {
    std::int64_t number = -1;
    if (object.contains("case")) read("case", number);
    result.point_places.push_back({result.runs.empty() ? 0 : result.runs.size() - 1, number});
    return result.points.push_back(point_of(read));
  }
  if (kind == "timing") {
    if (result.runs.empty())
      throw Error("a timing before the line of its run; name a file that --jsonl wrote");
    RecordedTiming recorded{{}, result.runs.size() - 1};
    visit_timing(recorded.timed, read);
    read_subject(recorded.timed.record, read);
    visit_judgement(recorded.timed.record, read);
    result.timings.push_back(std::move(recorded));
    return;
  }
  if (kind != "start" && kind != "end") {
    throw Error(fmt::format("event '{}', not run, start, end, finish, point or timing", kind));
  }
  std::int64_t number = 0;
  read("case", number);
  Record record;
  read_subject(record, read);
  if (kind == "start") {
    if (!open.cases.emplace(number, std::move(record)).second) {
      throw Error(
          fmt::format("case {} starts twice: two processes wrote to this file; give each its own", number));
    }
    return;
  }
  visit_judgement(record, read);
  open.cases.erase(number);
  ++open.ended;
  result.places.push_back({result.runs.empty() ? 0 : result.runs.size() - 1, number});
  result.records.push_back(std::move(record));
}

}  // namespace

JsonLinesWriter::JsonLinesWriter(const std::filesystem::path& path, const Run& run, Mode mode) {
  make_parent_folder(path);
  lock_ = FileLock(path);
  const bool cut = mode == Mode::append && ends_inside_a_line(path);
  constexpr mode_t kPermissions = 0666;
  const int how = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (mode == Mode::replace ? O_TRUNC : 0);
  const int descriptor = ::open(path.c_str(), how, kPermissions);
  if (descriptor < 0) {
    throw Error(fmt::format("{}: cannot be opened for writing ({}); name another file", path.string(),
                            std::strerror(errno)));
  }
  file_ = LineFile(path, descriptor);
  if (mode == Mode::resume && !std::filesystem::is_empty(path)) return;
  Json object = event("run");
  Run dated = run;
  if (dated.date.empty()) dated.date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  visit_run(dated, Writer{object});
  Writer{object}.unless_empty("shard", shard_text(run.part));
  write((cut ? "\n" : "") + one_line(object));
}

std::int64_t JsonLinesWriter::start(const Record& planned, std::int64_t number) {
  const std::lock_guard lock(mutex_);
  if (number < 0) number = next_++;
  Json object = event("start");
  object["case"] = number;
  visit_subject(planned, Writer{object});
  write(one_line(object));
  return number;
}

void JsonLinesWriter::end(std::int64_t number, const Record& record) {
  const std::lock_guard lock(mutex_);
  Json object = event("end");
  object["case"] = number;
  visit_subject(record, Writer{object});
  visit_judgement(record, Writer{object});
  if (is_failure(record.judgement.verdict)) object["command"] = repro_command(record);
  write(one_line(object));
}

void JsonLinesWriter::end(std::int64_t number, const Record& record, const RecordedCall& call) {
  const std::lock_guard lock(mutex_);
  Json object = event("end");
  object["case"] = number;
  const Writer write_field{object};
  visit_subject(record, write_field);
  visit_judgement(record, write_field);
  write_field("captured", call.file);
  write_field.unless_empty("numbers", call.numbers);
  write(one_line(object));
}

void JsonLinesWriter::finish(const RunEnd& end) {
  const std::lock_guard lock(mutex_);
  Json object = event("finish");
  object["exit"] = end.exit;
  visit_end(end, Writer{object});
  write_grown(object, end.grown);
  write(one_line(object));
  file_.sync();
  file_.check();
}

void JsonLinesWriter::point(const Measurement& measurement, std::int64_t number) {
  const std::lock_guard lock(mutex_);
  Json object = point_object(measurement);
  if (number >= 0) object["case"] = number;
  write(one_line(object));
}

void JsonLinesWriter::timing(const TimedCase& timed) {
  const std::lock_guard lock(mutex_);
  Json object = event("timing");
  visit_timing(timed, Writer{object});
  visit_subject(timed.record, Writer{object});
  visit_judgement(timed.record, Writer{object});
  write(one_line(object));
}

std::string point_text(const Measurement& measurement) { return one_line(point_object(measurement)); }

Measurement parse_point(std::string_view text) {
  const Json object = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) throw Error("a damaged point");
  return point_of(Reader{object});
}

void JsonLinesWriter::write(const std::string& line) { file_.append(line); }

RecordFile read_json_lines(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(fmt::format("{}: cannot be read; name a file that --jsonl wrote", path.string()));
  RecordFile result;
  OpenRun open;
  std::int64_t line_number = 0;
  std::string why;           // the damaged line is no JSON
  std::int64_t damaged = 0;  // number of a line that is not JSON: the last one of its run, or an error
  for (std::string line; next_line(file, line);) {
    if (line.size() > kLongestLine) {
      throw Error(fmt::format("{}:{}: a line of more than {} MB; name a file that --jsonl wrote",
                              path.string(), line_number + 1, kLongestLine / 1'000'000));
    }
    ++line_number;
    if (line.empty()) continue;
    const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    const bool begins_run = object.is_object() && object.value("event", Json()) == "run";
    if (damaged && !begins_run)
      throw Error(fmt::format(
          "{}:{}: not JSON ({}), and not the last line of its run; take the line out to read the rest",
          path.string(), damaged, why));
    damaged = object.is_discarded() ? line_number : 0;
    if (damaged) why = json_error(line);
    // A line that was cut off begins as a whole one does.
    if (damaged && !line.starts_with('{'))
      throw Error(fmt::format("{}:{}: not JSON Lines: {}; name a file that --jsonl or sweep --out wrote{}",
                              path.string(), damaged, why,
                              path.extension() == ".md" ? ", from which the Markdown was made" : ""));
    if (damaged) ++result.cut_lines;
    if (damaged) continue;
    try {
      read_event(object, open, result);
    } catch (const Error& error) {
      throw Error(fmt::format("{}:{}: {}", path.string(), line_number, error.what()));
    }
  }
  close_run(open, result);
  return result;
}

std::vector<std::string> shortcomings(const RecordFile& file) {
  std::vector<std::string> sentences;
  for (const RunEnd& end : file.ends) {
    if (!end.not_complete.empty()) sentences.push_back(end.not_complete);
    sentences.insert(sentences.end(), end.remarks.begin(), end.remarks.end());
  }
  return sentences;
}

}  // namespace samestate

#include "reports/json_lines.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "reference/error.h"
#include "reports/files.h"

namespace samestate {
namespace {

using Json = nlohmann::ordered_json;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::array verdicts = {Verdict::pass,    Verdict::fail,  Verdict::vacuous, Verdict::unsupported,
                                 Verdict::skipped, Verdict::crash, Verdict::timeout, Verdict::flaky};

Json encoded(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

/// The one table of fields: calls visit(name, field) for each member, for writing and for reading alike.
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
}

template <class AnyRecord, class Visit>
void visit_judgement(AnyRecord& record, Visit&& visit) {
  auto& judgement = record.judgement;
  visit("verdict", judgement.verdict);
  visit("gate", judgement.gate);
  visit("ratio", judgement.ratio);
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
  visit("rows", judgement.rows);
  visit("reason", judgement.reason);
  visit("seconds", record.seconds);
}

template <class AnyRun, class Visit>
void visit_run(AnyRun& run, Visit&& visit) {
  visit("version", run.version);
  visit("commit", run.commit);
  visit("device", run.device);
  visit("driver", run.driver);
  visit("toolkit", run.toolkit);
  visit("kernel_sources", run.kernel_sources);
}

struct Writer {
  Json& object;
  void operator()(const char* name, const std::string& text) const { object[name] = text; }
  void operator()(const char* name, double value) const { object[name] = encoded(value); }
  void operator()(const char* name, std::int64_t value) const { object[name] = value; }
  void operator()(const char* name, Verdict verdict) const { object[name] = name_of(verdict); }
  void operator()(const char* name, const Location& at) const {
    object[name] = {
        {"sequence", at.sequence}, {"head", at.head}, {"token", at.token}, {"channel", at.channel}};
  }
};

struct Reader {
  const Json& object;

  [[nodiscard]] const Json& field(const char* name) const {
    const auto found = object.find(name);
    if (found == object.end()) throw Error(fmt::format("no field '{}'", name));
    return *found;
  }
  [[noreturn]] static void reject(const char* name, const Json& value, const char* wanted) {
    throw Error(fmt::format("field '{}' is {}, not {}", name, value.dump(), wanted));
  }
  void operator()(const char* name, std::string& text) const {
    const Json& value = field(name);
    if (!value.is_string()) reject(name, value, "a string");
    text = value.get<std::string>();
  }
  void operator()(const char* name, double& number) const {
    const Json& value = field(name);
    if (value.is_number()) {
      number = value.get<double>();
    } else if (value == "nan") {
      number = std::numeric_limits<double>::quiet_NaN();
    } else if (value == "inf" || value == "-inf") {
      number = value == "inf" ? infinity : -infinity;
    } else {
      reject(name, value, "a number, \"nan\", \"inf\" or \"-inf\"");
    }
  }
  void operator()(const char* name, std::int64_t& number) const {
    const Json& value = field(name);
    if (!value.is_number_integer()) reject(name, value, "an integer");
    number = value.get<std::int64_t>();
  }
  void operator()(const char* name, Verdict& verdict) const {
    const Json& value = field(name);
    for (Verdict candidate : verdicts) {
      if (value == name_of(candidate)) {
        verdict = candidate;
        return;
      }
    }
    reject(name, value, "a verdict");
  }
  void operator()(const char* name, Location& at) const {
    const Json& value = field(name);
    if (!value.is_object()) reject(name, value, "an object");
    const Reader inner{value};
    inner("sequence", at.sequence);
    inner("head", at.head);
    inner("token", at.token);
    inner("channel", at.channel);
  }
};

Json event(const char* name) { return {{"schema", json_lines_schema}, {"event", name}}; }

/// Bytes that are not UTF-8 (a kernel's message may hold anything) become U+FFFD.
std::string one_line(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

bool ends_inside_a_line(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file || file.tellg() == std::streampos(0)) return false;
  file.seekg(-1, std::ios::end);
  return file.get() != '\n';
}

/// The cases of one run that have started and not ended.
using Open = std::map<std::int64_t, Record>;

void close_run(Open& open, RecordFile& result) {
  for (auto& [number, record] : open) {
    record.judgement.verdict = Verdict::crash;
    record.judgement.gate = "crash";
    record.judgement.reason =
        "started and never ended: the process died in it or in a case beside it, or was killed";
    result.records.push_back(std::move(record));
  }
  open.clear();
}

void read_event(const Json& object, Open& open, RecordFile& result) {
  if (!object.is_object() || !object.contains("schema")) {
    throw Error("no field 'schema': not a record of samestate; name a file that --jsonl wrote");
  }
  if (object["schema"] != json_lines_schema) {
    throw Error(fmt::format("schema {}, this version reads {}; use the samestate that wrote it",
                            object["schema"].dump(), json_lines_schema));
  }
  const Reader read{object};
  std::string kind;
  read("event", kind);
  if (kind == "run") {
    close_run(open, result);
    Run run;
    visit_run(run, read);
    result.runs.push_back(std::move(run));
    return;
  }
  if (kind != "start" && kind != "end") throw Error(fmt::format("event '{}', not run, start or end", kind));
  std::int64_t number = 0;
  read("case", number);
  Record record;
  visit_subject(record, read);
  if (kind == "start") {
    if (!open.emplace(number, std::move(record)).second) {
      throw Error(
          fmt::format("case {} starts twice: two processes wrote to this file; give each its own", number));
    }
    return;
  }
  visit_judgement(record, read);
  open.erase(number);
  result.records.push_back(std::move(record));
}

}  // namespace

JsonLinesWriter::JsonLinesWriter(const std::filesystem::path& path, const Run& run, Mode mode) : path_(path) {
  make_parent_folder(path);
  const bool cut = mode == Mode::append && ends_inside_a_line(path);
  file_.open(path, std::ios::binary | (mode == Mode::append ? std::ios::app : std::ios::trunc));
  if (!file_) throw Error(fmt::format("{}: cannot be opened for writing; name another file", path.string()));
  Json object = event("run");
  visit_run(run, Writer{object});
  write((cut ? "\n" : "") + one_line(object));
}

std::int64_t JsonLinesWriter::start(const Record& planned) {
  const std::lock_guard lock(mutex_);
  const std::int64_t number = next_++;
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
  write(one_line(object));
}

void JsonLinesWriter::write(const std::string& line) {
  file_ << line << std::flush;
  if (!file_)
    throw Error(fmt::format("{}: cannot be written; free space or name another file", path_.string()));
}

RecordFile read_json_lines(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(fmt::format("{}: cannot be read; name a file that --jsonl wrote", path.string()));
  RecordFile result;
  Open open;
  std::int64_t line_number = 0;
  std::int64_t damaged = 0;  // number of a line that is no JSON: the last of its run, or an error
  for (std::string line; std::getline(file, line);) {
    ++line_number;
    if (line.empty()) continue;
    const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    const bool begins_run = object.is_object() && object.value("event", Json()) == "run";
    if (damaged && !begins_run) {
      throw Error(
          fmt::format("{}:{}: not JSON, and not the last line of its run; take the line out to read the rest",
                      path.string(), damaged));
    }
    damaged = object.is_discarded() ? line_number : 0;
    if (damaged) {
      ++result.cut_lines;
      continue;
    }
    try {
      read_event(object, open, result);
    } catch (const Error& error) {
      throw Error(fmt::format("{}:{}: {}", path.string(), line_number, error.what()));
    }
  }
  close_run(open, result);
  return result;
}

}  // namespace samestate

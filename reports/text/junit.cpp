#include "reports/text/junit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <map>
#include <pugixml.hpp>
#include <sstream>
#include <vector>

#include "reports/records/evidence.h"
#include "reports/records/failure_groups.h"
#include "reports/records/files.h"
#include "reports/records/judged_share.h"
#include "reports/records/summary.h"
#include "reports/text/escape.h"

namespace samestate {
namespace {

void set(pugi::xml_node node, const char* name, std::string_view value) {
  node.append_attribute(name).set_value(xml_safe(value).c_str());
}

void set_seconds(pugi::xml_node node, double seconds) { set(node, "time", fmt::format("{:.6f}", seconds)); }

void add_property(pugi::xml_node properties, std::string_view name, std::string_view value) {
  if (value.empty()) return;
  pugi::xml_node property = properties.append_child("property");
  set(property, "name", name);
  set(property, "value", value);
}

struct Totals {
  std::int64_t failures;
  std::int64_t errors;
  std::int64_t skipped;
};

Totals totals_of(const Summary& summary) {
  const auto count = [&](Verdict verdict) { return summary.count(verdict); };
  return {count(Verdict::fail) + count(Verdict::flaky), count(Verdict::crash) + count(Verdict::timeout),
          count(Verdict::vacuous) + count(Verdict::unsupported) + count(Verdict::skipped)};
}

void add_case(pugi::xml_node suite, const Record& record) {
  pugi::xml_node node = suite.append_child("testcase");
  set(node, "classname", record.system + "." + record.form);
  set(node, "name", record.line);
  set_seconds(node, record.seconds);
  const Verdict verdict = record.judgement.verdict;
  const std::string finding = judgement_line(record.judgement);
  const auto explain = [&](const char* element, bool with_text) {
    pugi::xml_node child = node.append_child(element);
    set(child, "message", fmt::format("{} [{}]", finding, record.line));
    if (!with_text) return;
    set(child, "type", name_of(verdict));
    const std::string text =
        fmt::format("{}\n{}\nlikely cause: {}\n{}kernel {}, device {}, contract {}, regime {}\n{}\n",
                    record.line, finding, likely_cause(record.judgement),
                    record.looks_like.empty() ? "" : fmt::format("looks like: {}\n", record.looks_like),
                    record.kernel, record.device, record.contract, record.regime, repro_command(record));
    child.text().set(xml_safe(text).c_str());
  };
  switch (verdict) {
    case Verdict::pass:
      break;
    case Verdict::fail:
    case Verdict::flaky:
      explain("failure", true);
      break;
    case Verdict::crash:
    case Verdict::timeout:
      explain("error", true);
      break;
    case Verdict::vacuous:
    case Verdict::unsupported:
    case Verdict::skipped:
      explain("skipped", false);
      break;
  }
  if (verdict == Verdict::pass) node.append_child("system-out").text().set(xml_safe(finding).c_str());
}

void add_suite(pugi::xml_node root, const std::string& kernel, const std::vector<Record>& records,
               const Run& run) {
  const Summary summary = summarise(records);
  const Totals totals = totals_of(summary);
  pugi::xml_node suite = root.append_child("testsuite");
  set(suite, "name", kernel);
  set(suite, "tests", std::to_string(summary.cases));
  set(suite, "failures", std::to_string(totals.failures));
  set(suite, "errors", std::to_string(totals.errors));
  set(suite, "skipped", std::to_string(totals.skipped));
  set_seconds(suite, summary.seconds);
  pugi::xml_node properties = suite.append_child("properties");
  add_property(properties, "samestate.version", run.version);
  add_property(properties, "commit", run.commit);
  add_property(properties, "device", run.device);
  add_property(properties, "driver", run.driver);
  add_property(properties, "toolkit", run.toolkit);
  add_property(properties, "kernel_sources", sources_text(run.kernel_sources));
  add_property(properties, "plugins", run.plugins);
  add_property(properties, "no_device", without_device(records));
  for (std::size_t i = 0; i < kVerdictCount; ++i) {
    add_property(properties, fmt::format("cases.{}", name_of(static_cast<Verdict>(i))),
                 std::to_string(summary.counts[i]));
  }
  for (const Record& record : records) add_case(suite, record);
}

/// Returns, for each record that is a failure, what the example of its kind looks like: only one failure of a kind is
/// explained, but a reader of the file may open any of them. Empty for the others.
std::vector<std::string> looks_of_kinds(std::span<const Record> records) {
  std::vector<std::string> out(records.size());
  for (const FailureGroup& group : failure_groups(records)) {
    const Record& example = records[group.example];
    if (example.looks_like.empty()) continue;
    for (const std::size_t member : group.members)
      out[member] =
          fmt::format("{}, as far as an example of this kind shows: {}", example.looks_like, example.line);
  }
  return out;
}

/// Adds what no single case says: that other cases were not run, or that too few were judged.
void add_run(pugi::xml_node root, const RunEnd& end) {
  std::vector<std::string> sentences = end.remarks;
  if (!end.not_complete.empty()) sentences.insert(sentences.begin(), end.not_complete);
  pugi::xml_node suite = root.append_child("testsuite");
  set(suite, "name", "samestate gate");
  set(suite, "tests", "1");
  set(suite, "failures", "0");
  set(suite, "errors", end.exit == 0 ? "0" : "1");
  set(suite, "skipped", end.exit == 0 ? "1" : "0");
  set_seconds(suite, 0.0);
  pugi::xml_node node = suite.append_child("testcase");
  set(node, "classname", "samestate.gate");
  set(node, "name", "the run is whole and covers enough");
  set_seconds(node, 0.0);
  pugi::xml_node child = node.append_child(end.exit == 0 ? "skipped" : "error");
  set(child, "message", fmt::format("exit {}: {}", end.exit, fmt::join(sentences, " ")));
  if (end.exit != 0) set(child, "type", "incomplete");
}

}  // namespace

std::string junit_text(std::span<const Record> records, const Run& run, const RunEnd& end) {
  std::map<std::string, std::vector<Record>> suites;
  const std::vector<std::string> looks = looks_of_kinds(records);
  for (std::size_t i = 0; i < records.size(); ++i) {
    std::vector<Record>& suite = suites[records[i].kernel];
    suite.push_back(records[i]);
    if (suite.back().looks_like.empty()) suite.back().looks_like = looks[i];
  }
  const Summary summary = summarise(records);
  const Totals totals = totals_of(summary);
  const bool remarked = !end.not_complete.empty() || !end.remarks.empty();
  const bool error = remarked && end.exit != 0;

  pugi::xml_document document;
  pugi::xml_node declaration = document.append_child(pugi::node_declaration);
  set(declaration, "version", "1.0");
  set(declaration, "encoding", "UTF-8");
  pugi::xml_node root = document.append_child("testsuites");
  set(root, "name", "samestate");
  set(root, "tests", std::to_string(summary.cases + (remarked ? 1 : 0)));
  set(root, "failures", std::to_string(totals.failures));
  set(root, "errors", std::to_string(totals.errors + (error ? 1 : 0)));
  set_seconds(root, summary.seconds);
  if (remarked) add_run(root, end);
  for (const auto& [kernel, of_kernel] : suites) add_suite(root, kernel, of_kernel, run);

  std::ostringstream text;
  document.save(text, "  ", pugi::format_default, pugi::encoding_utf8);
  return text.str();
}

void write_junit(const std::filesystem::path& path, std::span<const Record> records, const Run& run,
                 const RunEnd& end) {
  write_atomically(path, junit_text(records, run, end));
}

}  // namespace samestate

#include "cli/judge_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <vector>

#include "cli/commands.h"
#include "cli/explained.h"
#include "cli/interrupt.h"
#include "cli/manifest.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "fixtures/run_file.h"
#include "harness/processes/campaign.h"
#include "harness/processes/pool.h"
#include "harness/systems/saved_run.h"
#include "oracles/contracts.h"
#include "reference/error.h"
#include "reports/records/json_lines.h"
#include "reports/records/summary.h"
#include "reports/text/gate_json.h"
#include "reports/text/junit.h"
#include "reports/text/markdown.h"
#include "reports/text/terminal.h"

namespace samestate::cli {
namespace {

namespace fs = std::filesystem;

bool is_written(const RunFile& run) {
  const Resolved r(parse_case(run.case_line));
  for (const TensorSpec& spec : r.system->signature(r.c).outputs) {
    const std::string name = std::string(r.system->in_file.output) + spec.name;
    const auto found = run.tensors.find(name);
    if (found == run.tensors.end()) return false;
    const std::vector<double>& values = found->second.values;
    if (std::any_of(values.begin(), values.end(), [](double x) { return !std::isnan(x); })) return true;
  }
  return false;
}

/// What is known of a file's record before it is read.
Record record_for(const ManifestEntry& entry) {
  const Resolved r(parse_case(entry.line));
  Record record;
  record.line = entry.line;
  record.kernel = "elsewhere";
  record.system = r.c.system, record.form = r.c.form, record.contract = r.c.contract,
  record.regime = r.c.regime;
  record.device = "elsewhere";
  return record;
}

}  // namespace

int judge_folder(const JudgeFolderOptions& options) {
  const fs::path folder(options.folder);
  const std::vector<ManifestEntry> entries = read_manifest(folder);
  for (const ManifestEntry& entry : entries) {
    if (!fs::is_regular_file(folder / entry.file))
      throw Error(
          fmt::format("{}: the manifest names it, and it is not there", (folder / entry.file).string()));
  }
  Run run = this_run({}, {}, options.commit);
  run.device = "elsewhere";
  run.planned = std::ssize(entries);
  std::unique_ptr<JsonLinesWriter> lines;
  if (!options.jsonl.empty()) lines = std::make_unique<JsonLinesWriter>(options.jsonl, run);
  note_interrupts();
  Progress progress(std::ssize(entries));
  std::vector<Record> records;
  const auto begin = std::chrono::steady_clock::now();
  for (const ManifestEntry& entry : entries) {
    if (interrupted()) break;
    const std::string path = (folder / entry.file).string();
    Record record = record_for(entry);
    const std::int64_t number = lines ? lines->start(record) : -1;
    const JobResult done = run_interruptibly(
        [&] {
          RunFile file = read_run_file(path, named_shapes);
          if (without_kernel(file.case_line) != entry.line)
            throw Error(fmt::format("{}: its case is not the manifest's", path));
          if (!is_written(file)) {
            CaseResult result;
            result.judgement.verdict = Verdict::unsupported;
            result.judgement.reason = "its outputs are all NaN: nothing has been written into it";
            return result_text(result);
          }
          if (options.strict) file.case_line = format_case(exactly(parse_case(file.case_line)));
          return result_text(case_result(judge_run_file(file, nullptr)));
        },
        options.timeout);
    if (std::optional<Judgement> lost = judgement_of_loss(done)) {
      record.judgement = std::move(*lost);
    } else {
      const CaseResult result = parse_result(done.text);
      record.judgement = result.judgement;
      record.seconds = result.seconds;
    }
    if (record.judgement.verdict != Verdict::pass)
      record.judgement.reason += fmt::format("{}{}", record.judgement.reason.empty() ? "" : "; ", path);
    if (lines) lines->end(number, record);
    progress.step(record.judgement.ratio, is_failure(record.judgement.verdict));
    records.push_back(std::move(record));
  }
  progress.clear();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  RunEnd end;
  end.seconds = seconds.count();
  if (records.size() < entries.size())
    end.not_complete =
        fmt::format("Interrupted before {} of {} files.", entries.size() - records.size(), entries.size());
  Verdict worst = Verdict::skipped;
  bool judged = false, vacuous = false;
  for (const Record& record : records) {
    const Verdict verdict = record.judgement.verdict;
    judged = judged || verdict == Verdict::pass;
    vacuous = vacuous || verdict == Verdict::vacuous;
    if (verdict == Verdict::crash || verdict == Verdict::timeout) worst = Verdict::crash;
    if (verdict == Verdict::fail && worst != Verdict::crash) worst = Verdict::fail;
  }
  end.exit = worst == Verdict::crash  ? kCrash
             : worst == Verdict::fail ? kFail
             : interrupted()          ? kVacuous
             : judged                 ? kPass
             : vacuous                ? kVacuous
                                      : kNothingRan;
  if (lines) lines->finish(end);
  if (!options.junit.empty()) write_junit(options.junit, records, run, end);
  if (!options.markdown.empty()) write_markdown(options.markdown, records, run, end);
  if (options.json) {
    fmt::print("{}", gate_json(records, end));
    return end.exit;
  }
  fmt::print("{}{} of {} files in {:.1f} s.\n", terminal_text(records, colour()), records.size(),
             entries.size(), end.seconds);
  if (!end.not_complete.empty()) fmt::print("{}\n", end.not_complete);
  return end.exit;
}

}  // namespace samestate::cli

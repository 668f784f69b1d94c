#include "cli/judge_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string_view>
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

/// Returns what is known about a file's record before the file is read.
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

/// Writes numbers as text for another process, such that they are read back bit for bit.
std::string numbers_text(const std::map<std::string, double>& numbers) {
  std::string out;
  for (const auto& [name, value] : numbers)
    out += fmt::format("{}{}={:a}", out.empty() ? "" : " ", name, value);
  return out;
}

std::map<std::string, double> numbers_in(std::string_view text) {
  std::map<std::string, double> out;
  while (!text.empty()) {
    const std::string word(text.substr(0, text.find(' ')));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    const std::size_t equals = word.find('=');
    if (equals != word.npos) out[word.substr(0, equals)] = std::strtod(word.c_str() + equals + 1, nullptr);
  }
  return out;
}

}  // namespace

JudgedFolder judge_cases(const JudgeFolderOptions& options, std::vector<FolderCase> cases) {
  Run run = this_run({}, {}, options.commit);
  run.device = "elsewhere";
  run.planned = std::ssize(cases);
  std::unique_ptr<JsonLinesWriter> lines;
  if (!options.jsonl.empty()) lines = std::make_unique<JsonLinesWriter>(options.jsonl, run);
  note_interrupts();
  Progress progress(std::ssize(cases));
  JudgedFolder out;
  const auto begin = std::chrono::steady_clock::now();
  for (FolderCase& one : cases) {
    if (interrupted()) break;
    Record record = std::move(one.record);
    RecordedCall call{one.call, {}};
    const std::int64_t number = lines ? lines->start(record) : -1;
    const JobResult done = run_interruptibly(
        [&] {
          Record judged = record;
          const std::map<std::string, double> numbers = one.judge(judged);
          return result_text(case_result(judged)) + '\n' + numbers_text(numbers);
        },
        options.timeout);
    if (std::optional<Judgement> lost = judgement_of_loss(done)) {
      record.judgement = std::move(*lost);
    } else {
      const std::size_t end = done.text.rfind('\n');
      const CaseResult result = parse_result(done.text.substr(0, end));
      record.judgement = result.judgement;
      record.policy = result.policy;
      record.seconds = result.seconds;
      call.numbers = numbers_in(std::string_view(done.text).substr(end + 1));
    }
    if (record.judgement.verdict != Verdict::pass)
      record.judgement.reason += fmt::format("{}{}", record.judgement.reason.empty() ? "" : "; ", one.path);
    if (lines && call.file.empty()) lines->end(number, record);
    if (lines && !call.file.empty()) lines->end(number, record, call);
    progress.step(record.judgement.ratio, is_failure(record.judgement.verdict));
    out.cases.push_back({std::move(record), std::move(call)});
  }
  progress.clear();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  RunEnd& end = out.end;
  const std::vector<Record> records = out.records();
  end.seconds = seconds.count();
  end.not_complete = options.damaged;
  if (records.size() < cases.size())
    end.not_complete =
        fmt::format("Interrupted before {} of {} files.", cases.size() - records.size(), cases.size());
  Verdict worst = Verdict::skipped;
  bool judged = false, vacuous = false;
  for (const Record& record : records) {
    const Verdict verdict = record.judgement.verdict;
    judged = judged || verdict == Verdict::pass;
    vacuous = vacuous || verdict == Verdict::vacuous;
    if (verdict == Verdict::crash || verdict == Verdict::timeout) worst = Verdict::crash;
    if (verdict == Verdict::fail && worst != Verdict::crash) worst = Verdict::fail;
  }
  end.exit = worst == Verdict::crash    ? kCrash
             : worst == Verdict::fail   ? kFail
             : interrupted()            ? kVacuous
             : !options.damaged.empty() ? kUsage
             : judged                   ? kPass
             : vacuous                  ? kVacuous
                                        : options.nothing_judged;
  if (lines) lines->finish(end);
  if (!options.junit.empty()) write_junit(options.junit, records, run, end);
  if (!options.markdown.empty()) write_markdown(options.markdown, records, run, end);
  return out;
}

std::vector<Record> JudgedFolder::records() const {
  std::vector<Record> out;
  for (const JudgedCase& one : cases) out.push_back(one.record);
  return out;
}

int judge_folder(const JudgeFolderOptions& options) {
  const fs::path folder(options.folder);
  const std::vector<ManifestEntry> entries = read_manifest(folder);
  std::vector<FolderCase> cases;
  for (const ManifestEntry& entry : entries) {
    const std::string path = (folder / entry.file).string();
    if (!fs::is_regular_file(path))
      throw Error(fmt::format("{}: the manifest names this file, but it does not exist", path));
    cases.push_back({record_for(entry), path,
                     [path, entry, strict = options.strict](Record& record) -> std::map<std::string, double> {
                       RunFile file = read_run_file(path, named_shapes);
                       if (without_kernel(file.case_line) != entry.line)
                         throw Error(fmt::format("{}: its case differs from that of the manifest", path));
                       if (!is_written(file)) {
                         record.judgement.verdict = Verdict::unsupported;
                         record.judgement.reason =
                             "its outputs are all NaN: nothing has been written into it";
                         return {};
                       }
                       if (strict) file.case_line = format_case(exactly(parse_case(file.case_line)));
                       record = judge_run_file(file, nullptr);
                       return {};
                     }});
  }
  const JudgedFolder judged = judge_cases(options, std::move(cases));
  if (options.json) {
    fmt::print("{}", gate_json(judged.records(), judged.end));
    return judged.end.exit;
  }
  fmt::print("{}{} of {} files in {:.1f} s.\n",
             folded(terminal_text(judged.records(), colour()), columns_of_stdout()), judged.cases.size(),
             entries.size(), judged.end.seconds);
  if (!judged.end.not_complete.empty()) fmt::print("{}\n", judged.end.not_complete);
  return judged.end.exit;
}

}  // namespace samestate::cli

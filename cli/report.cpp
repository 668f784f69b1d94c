#include "reports/page/report.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include "cli/commands.h"
#include "cli/data_folder.h"
#include "harness/cases/system.h"
#include "reference/error.h"
#include "reports/records/files.h"
#include "samestate_kernel_sources.h"

namespace samestate::cli {
namespace {

struct ReportOptions {
  std::vector<std::string> files;
  std::string out = "out/report";
  std::string title = "samestate report";
  std::string mutants, equations;
  std::string evidence;
  bool no_plots = false, no_evidence = false;
};

std::string printed(const std::string& path) {
  std::optional<std::string> text = text_of(path);
  if (!text) throw Error(path + ": cannot be read; name a file that --json printed");
  return std::move(*text);
}

/// Returns the names of all kernels that the cases, points and timings belong to.
std::set<std::string> kernels_in(const std::vector<ReportSource>& sources) {
  std::set<std::string> out;
  for (const ReportSource& source : sources) {
    for (const Record& r : source.content.records) out.insert(r.kernel);
    for (const Measurement& m : source.content.points) out.insert(m.record.kernel);
    for (const auto& timed : source.content.timings) out.insert(timed.timed.record.kernel);
  }
  return out;
}

int run_report(const ReportOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  ReportInput input;
  input.title = options.title;
  for (const System* system : systems()) {
    for (const CaseSize& size : system->sizes) input.sizes.emplace(size.name);
  }
  if (options.out.empty()) throw Error("--out is empty; name a folder to write to");
  if (!options.evidence.empty() && !std::filesystem::is_directory(options.evidence))
    throw Error(options.evidence + ": no such folder of evidence; name one, or --no-evidence");
  std::set<std::string> names;
  std::int64_t cut = 0;
  for (const std::string& path : options.files) {
    if (std::filesystem::is_directory(path))
      throw Error(path + ": is a folder; name the JSON Lines files that gate, fuzz or sweep wrote");
    std::error_code code;
    for (const std::string& other : options.files) {
      if (&other < &path && std::filesystem::equivalent(other, path, code))
        throw Error(path + ": is given twice, so that every case would count twice; name it once");
    }
    // The report shows the name without its folder, so that the same file gives the same report anywhere.
    std::string name = std::filesystem::path(path).filename().string();
    if (!names.insert(name).second) name = path;
    input.sources.push_back({name, read_json_lines(path)});
    const RecordFile& content = input.sources.back().content;
    if (content.runs.empty() && content.points.empty() && content.records.empty() && content.timings.empty())
      throw Error(path +
                  ": there is no run in it; name a JSON Lines file that gate, fuzz, sweep or bench wrote");
    for (const std::string& sentence : shortcomings(content))
      fmt::print(stderr, "samestate: {}: {}\n", path, sentence);
    if (content.cut_lines > 0) {
      cut += content.cut_lines;
      fmt::print(stderr, "samestate: {}: {} line(s) are cut off in the middle; the complete ones are shown\n",
                 path, content.cut_lines);
    }
    if (content.points.empty() && content.records.empty() && content.timings.empty())
      fmt::print(stderr, "samestate: {}: it contains no case, no point and no timing\n", path);
  }
  std::int64_t timings = 0;
  for (const ReportSource& source : input.sources) timings += std::ssize(source.content.timings);
  if (!options.no_evidence) {
    const std::string folder = options.evidence.empty() ? data_folder("evidence") : options.evidence;
    input.evidence = read_evidence(folder);
    input.timings = read_timings(folder);
    for (TimedEvidence& timing : input.timings) timing.carried = true;
    // The evidence that this build has about other kernels does not belong into a report about these.
    if (options.evidence.empty()) {
      const std::set<std::string> kernels = kernels_in(input.sources);
      std::erase_if(input.evidence, [&](const Evidence& e) { return !kernels.contains(e.kernel); });
      std::erase_if(input.timings,
                    [&](const TimedEvidence& e) { return !kernels.contains(e.timed.record.kernel); });
    }
  }
  input.kernel_sources = SAMESTATE_CUDA_SOURCES;
  if (!options.mutants.empty()) input.mutants = printed(options.mutants);
  if (!options.equations.empty()) input.equations = printed(options.equations);
  const ReportFiles files = write_report(options.out, input, !options.no_plots);
  fmt::print("{}: {} points, {} cases, {} timings, {} plots; page of {:.1f} MB, {} files in {:.1f} s\n",
             (std::filesystem::path(options.out) / "index.html").string(), files.points, files.cases,
             files.timings, files.plots, static_cast<double>(files.page_bytes) / 1e6, files.names.size(),
             std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  // A page that shows nothing is written nevertheless, but it is not a success.
  const bool nothing =
      files.points == 0 && files.cases == 0 && timings == 0 && !input.mutants && !input.equations;
  return nothing ? kVacuous : kPass;
}

}  // namespace

Command add_report(CLI::App& app) {
  auto options = std::make_shared<ReportOptions>();
  app.footer(
      "Reads what `sweep`, `gate --jsonl`, `fuzz` and `bench --jsonl` recorded. It computes nothing again, "
      "so "
      "that a report can be made on a machine without the kernels. It writes index.html (a single file that "
      "opens from disk), the numbers as CSV and JSON, and the plots as SVG.\n\n"
      "  samestate sweep && samestate report out/sweep.jsonl out/gate.jsonl --out out/report\n"
      "  samestate bench --jsonl out/bench.jsonl && samestate report out/bench.jsonl\n\n"
      "These commands make the complete page:\n"
      "  samestate equations --json > out/equations.json\n"
      "  samestate mutants --smoke --public --json > out/mutants.json\n"
      "  samestate report out/*.jsonl --equations out/equations.json --mutants out/mutants.json\n\n"
      "Timings are shown under Evidence: the share of the floor, the ratio to the peer, and whether the "
      "kernels have changed since they were timed. timings.csv contains all of them.\n\n"
      "The exit code is 0 if the report was written, 2 for bad input, and 3 if the files contain no case, no "
      "point and no timing.");
  app.add_option("files", options->files, "JSON Lines files that sweep, gate, fuzz or bench wrote")
      ->required();
  app.add_option("--out", options->out, "the folder to write to")->capture_default_str();
  app.add_option("--title", options->title, "heading of the page, which says what was recorded")
      ->capture_default_str();
  app.add_option("--mutants", options->mutants,
                 "add the table of mutants from this output of `samestate mutants --json`");
  app.add_option("--equations", options->equations,
                 "add the ledger from this output of `samestate equations --json`");
  app.add_option("--evidence", options->evidence,
                 "show all recorded runs on devices in this folder (default: those of this build, for the "
                 "kernels in the "
                 "files)");
  app.add_flag("--no-evidence", options->no_evidence, "leave the recorded runs out");
  app.add_flag("--no-plots", options->no_plots, "make tables only; this does not need gnuplot");
  return [options] { return run_report(*options); };
}

}  // namespace samestate::cli

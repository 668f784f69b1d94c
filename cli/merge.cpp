#include "cli/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <thread>
#include <utility>

#include "cli/commands.h"
#include "cli/corpus.h"
#include "cli/filter.h"
#include "cli/options.h"
#include "cli/table.h"
#include "fuzz/search/checkpoint.h"
#include "reference/error.h"
#include "reports/records/files.h"
#include "reports/records/merge_runs.h"
#include "reports/records/summary.h"
#include "samestate_version.h"

namespace samestate::cli {
namespace {

/// The input files, by their kind.
struct Inputs {
  std::vector<NamedRecords> runs;
  std::vector<std::filesystem::path> checkpoints;
  std::vector<std::string> corpora;
  std::vector<std::string> mutants;
};

/// Returns the first characters that are not blank.
std::string beginning(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text(64, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

/// `merge` reads named files only: in one stream of all of them the ends of the files would not show.
Inputs inputs_of(const std::vector<std::string>& files) {
  Inputs in;
  for (const std::string& path : files) {
    std::error_code code;
    for (const std::string& other : files) {
      if (&other < &path && std::filesystem::equivalent(other, path, code))
        throw Error(path + ": is given twice, so that its cases would count twice; name it once");
    }
    if (!std::filesystem::exists(path, code))
      throw Error(path + ": does not exist; name the files of the shards");
    if (std::filesystem::is_directory(path, code)) {
      in.corpora.push_back(path);
      continue;
    }
    const std::string begin = beginning(path);
    if (is_checkpoint(path)) {
      in.checkpoints.emplace_back(path);
    } else if (begin.starts_with("{\n")) {
      in.mutants.push_back(path);
    } else if (begin.starts_with("{")) {
      in.runs.push_back({path, read_json_lines(path)});
    } else if (begin.starts_with("<")) {
      throw Error(path +
                  ": this is XML; name the JSON Lines of the shards, from which --junit FILE writes a single "
                  "XML file");
    } else if (begin.empty()) {
      throw Error(path +
                  ": is empty: its shard was killed at once, or the disk was full; run that shard again");
    } else {
      throw Error(path +
                  ": this is neither a run file (--jsonl, --out), a checkpoint, the folder of a corpus nor "
                  "the JSON of mutants; "
                  "name one of these");
    }
  }
  return in;
}

/// Writes one folder of case lines from all: a line that several contain is kept once, under its first
/// comment.
void merge_corpora(const std::vector<std::string>& folders, const std::string& out) {
  std::int64_t added = 0, known = 0;
  // Errors in any of them are reported before the first is written.
  std::vector<CorpusEntry> entries;
  for (const std::string& folder : folders) {
    std::vector<CorpusEntry> of = read_corpus(folder);
    entries.insert(entries.end(), std::make_move_iterator(of.begin()), std::make_move_iterator(of.end()));
  }
  for (const CorpusEntry& entry : entries) {
    const std::string comment = entry.comment.empty() ? "from " + entry.file.string() : entry.comment;
    ++(append_to_corpus(out, comment, entry.c) ? added : known);
  }
  fmt::print("{} of {}: {} added to {}, {} there before\n", counted(std::ssize(entries), "case"),
             counted(std::ssize(folders), "corpus folder"), added, out, known);
}

int run_merge(const MergeOptions& options) {
  Inputs in = inputs_of(options.files);
  std::vector<std::pair<std::string, std::string>> places{{"--jsonl", options.jsonl},
                                                          {"--junit", options.junit},
                                                          {"--markdown", options.markdown},
                                                          {"--coverage", options.coverage},
                                                          {"--write-baseline", options.new_baseline},
                                                          {"--checkpoint", options.checkpoint}};
  for (const auto& [option, path] : places) {
    if (!path.empty()) require_writable(path);
  }
  for (const std::string& file : options.files) {
    if (!std::filesystem::is_directory(file)) places.emplace_back("an input", file);
  }
  require_different(places);
  if (!in.checkpoints.empty() && options.checkpoint.empty())
    throw Error(in.checkpoints.front().string() +
                ": this is a checkpoint; name the file for the joined checkpoint with --checkpoint FILE");
  if (!in.corpora.empty() && options.corpus.empty())
    throw Error(
        in.corpora.front() +
        ": this is a folder, and so a corpus; name the folder for the joined corpus with --corpus FOLDER");
  if (!in.mutants.empty() && in.runs.size() + in.checkpoints.size() + in.corpora.size() > 0)
    throw Error(in.mutants.front() + ": this file is about mutants, which are merged without other files");
  if (!in.mutants.empty()) return merge_mutants(in.mutants, options);
  // Reading the run reports errors in its files before any file is written.
  std::optional<MergedRun> run;
  if (!in.runs.empty()) run = merge_runs(in.runs, SAMESTATE_VERSION);
  if (!in.checkpoints.empty()) {
    make_parent_folder(options.checkpoint);
    const std::int64_t cases = merge_checkpoints(in.checkpoints, options.checkpoint);
    fmt::print(options.json ? stderr : stdout,
               "{} of {}: {}; `samestate fuzz --resume --checkpoint {}` goes on\n", counted(cases, "case"),
               counted(std::ssize(in.checkpoints), "checkpoint"), options.checkpoint, options.checkpoint);
  }
  if (!in.corpora.empty()) merge_corpora(in.corpora, options.corpus);
  if (!run) return kPass;
  if (run->run.part.verb == "gate") return merge_gate(std::move(*run), options);
  if (run->run.part.verb == "fuzz") return merge_search(std::move(*run), options);
  return merge_sweep(std::move(*run), options);
}

}  // namespace

MergedFile::MergedFile(const std::string& path, const Run& run) {
  if (path.empty()) return;
  std::error_code code;
  const bool special = std::filesystem::exists(path, code) && !std::filesystem::is_regular_file(path, code);
  if (!special) {
    make_parent_folder(path);
    fresh_ = std::make_unique<FreshFile>(path);
  }
  lines_ = RunLines(special ? path : fresh_->path().string(), run);
}

bool MergedFile::keep() {
  lines_ = std::exchange(lines_, RunLines());
  if (fresh_ == nullptr) return true;
  try {
    fresh_->put_in_place();
    return true;
  } catch (const Error& error) {
    fmt::print(stderr, "samestate: {}\n", error.what());
    return false;
  }
}

Command add_merge(CLI::App& app) {
  auto options = std::make_shared<MergeOptions>();
  app.footer(
      "Joins the results of the shards of one gate, fuzz, sweep or mutants (--shard I/N), in any "
      "order, and gives the verdict,\n"
      "the reports and the exit code that a single run would have given. For a search, run files, "
      "checkpoints and corpus\n"
      "folders can be joined together. Exit 2 names a shard that is missing or given twice, files "
      "with different versions,\n"
      "plans or options, and lines that are missing or incomplete (docs/do/shards.md).\n"
      "\n"
      "  samestate gate --shard 0/2 --jsonl part-0.jsonl\n"
      "  samestate gate --shard 1/2 --jsonl part-1.jsonl            on another machine\n"
      "  samestate merge part-0.jsonl part-1.jsonl --jsonl gate.jsonl --junit gate.xml --markdown "
      "gate.md\n"
      "\n"
      "  samestate merge night-*.txt found-* --checkpoint night.txt --corpus found\n"
      "  samestate merge points-*.jsonl --jsonl sweep.jsonl && samestate report sweep.jsonl\n"
      "  samestate merge mutants-*.json --json\n"
      "\n"
      "A single gate adds cases at its end for pairs that no judged case showed. For a whole gate "
      "these are run here, if the\n"
      "kernels (--plugin as in the gate) and the device of the shards are available; --no-again "
      "leaves them out.");
  app.add_option("files", options->files, "run files, checkpoints, corpus folders, or the JSON of mutants")
      ->required();
  app.add_option("--jsonl", options->jsonl,
                 "write the run as JSON Lines, with the cases in the order of the plan")
      ->check(named());
  app.add_option("--junit", options->junit, "write JUnit XML")->check(named());
  app.add_option("--markdown", options->markdown, "write a Markdown summary, worst first")->check(named());
  app.add_option("--coverage", options->coverage,
                 "write to this JSON file which pairs all shards together judged, by kernel")
      ->check(named());
  app.add_option("--write-baseline", options->new_baseline, "write the ratios of the run, if it passes")
      ->check(named());
  app.add_option("--checkpoint", options->checkpoint, "write one checkpoint that joins those of the searches")
      ->check(named());
  app.add_option("--corpus", options->corpus, "add the cases of the corpora to this folder")->check(named());
  add_plugin_option(app, options->plugins);
  app.add_flag("--no-again", options->no_again, "do not run further cases here");
  app.add_flag("--json", options->json, "print JSON instead of the summary");
  app.add_option("--floor", options->floor, "for mutants: lowest score in percent for exit 0")
      ->capture_default_str()
      ->check(number_in(0.0, 100.0));
  app.add_option("--threads", options->threads, "number of cases that run at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  return [options] { return run_merge(*options); };
}

}  // namespace samestate::cli

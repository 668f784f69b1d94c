#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/bad_call.h"
#include "cli/commands.h"
#include "cli/first_screen.h"
#include "cli/flashinfer_bench.h"
#include "cli/help.h"
#include "cli/ranks.h"
#include "cli/terminal.h"
#include "harness/records/line_file.h"
#include "reference/error.h"
#include "samestate_version.h"

namespace {

using namespace samestate;

/// What was printed so far could not be written: a full disk, say.
int cannot_write() {
  fmt::print(stderr, "samestate: cannot write to stdout: {}\n", std::strerror(errno));
  return cli::kUsage;
}

/// What is left in the buffer of stdout is part of the result; a verdict that is no pass stands.
int flushed(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  const int without = cannot_write();
  return code == cli::kPass ? without : code;
}

/// Of descriptors 0 to 2 that whoever started the command had closed, so that no file which it opens gets such a number and
/// receives what is printed.
void open_standard_descriptors() {
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number) {
    // The lowest free number is this one.
    if (::fcntl(number, F_GETFD) < 0) (void)::open("/dev/null", number == STDIN_FILENO ? O_RDONLY : O_WRONLY);
  }
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_descriptors();
  cli::end_with_the_reader();
  let_full_files_fail();
  // Of several ranks one speaks.
  cli::RankPlace place;
  try {
    if (const auto words =
            cli::flashinfer_bench_words(std::vector<std::string>(argv + std::min(argc, 1), argv + argc)))
      cli::run_flashinfer_bench(*words);
    place = cli::rank_place();
  } catch (const Error& error) {
    fmt::print(stderr, "samestate: {}\n", error.what());
    return cli::kUsage;
  }
  if (place.rank > 0 && std::freopen("/dev/null", "w", stdout) == nullptr) return cli::kUsage;
  if (argc <= 1) {
    fmt::print("{}", cli::first_screen());
    return flushed(cli::kPass);
  }
  CLI::App app(
      "samestate checks linear-attention kernels against float64 and multiprecision references of the "
      "equations they\n"
      "implement, within error bounds that are derived, not tuned.\n\n"
      "  samestate gate                        every kernel of this build: the CI job\n"
      "  samestate gate --plugin mine.so       and kernels of yours\n"
      "  samestate gate --shard 0/4 ..         a quarter of it; samestate merge joins the four\n"
      "  samestate fuzz --budget 5m            search with fresh cases, shrink what fails to one line\n"
      "  samestate repro 'v1 retention T=65'   one case, in full\n"
      "  samestate explain twin                what a word of the output means\n"
      "  samestate card --kernel NAME          what it rounds, read from its outputs: the contract to "
      "declare\n"
      "  samestate tolerance 'v1 retention'    which error to expect, which rtol and atol to test with\n"
      "  samestate goldens                     the references against public model code\n"
      "  samestate equations --verdict erratum what the documents get wrong, with the counterexamples\n"
      "  samestate list kernels                what there is, and the evidence for it\n\n"
      "Exit codes: 0 pass, 1 numerical failure, 2 bad input, 3 vacuous or too little covered, 4 flaky, 5 "
      "crash,\n"
      "77 nothing could run here.");
  app.formatter(std::make_shared<cli::HelpFormatter>());  // which verbs take over
  app.set_version_flag("-V,--version", std::string("samestate ") + SAMESTATE_VERSION);
  app.require_subcommand(1);

  struct Verb {
    CLI::App* app;
    cli::Command command;
  };
  std::vector<Verb> verbs;
  const auto add = [&](const char* name, const char* summary, auto&& adder) {
    CLI::App* sub = app.add_subcommand(name, summary);
    verbs.push_back({sub, adder(*sub)});
  };
  add("gate", "run the gate: every kernel against oracle, twin and laws; the CI job", cli::add_gate);
  add("fuzz", "search for failures with fresh cases, shrink what is found", cli::add_fuzz);
  add("repro", "run one case line and explain the verdict", cli::add_repro);
  add("judge", "judge the tensors of a run made elsewhere, without running anything", cli::add_judge);
  add("export",
      "cases as files with their inputs, for kernels that nothing here can call; judge takes the folder",
      cli::add_export);
  add("serve", "the gate of kernels of the program that started it, over stdin and stdout", cli::add_serve);
  add("goldens", "the references against tensors of public model code", cli::add_goldens);
  add("equations", "every equation of the documents, computed: holds, or what is wrong with it",
      cli::add_equations);
  add("identities", "the relations between forms of the references, in float64 and in 50 digits",
      cli::add_identities);
  add("sweep", "error against chunk, length, decay, condition and width: the points of a report",
      cli::add_sweep);
  add("report", "one HTML page of recorded runs: error curves, verdicts, evidence", cli::add_report);
  add("merge", "what the shards of a gate, fuzz, sweep or mutants wrote: the one run's verdict and reports",
      cli::add_merge);
  add("scale", "how long a run takes on so many ranks, computed from what its cases took", cli::add_scale);
  add("compare", "what changed between two recorded runs, case by case", cli::add_compare);
  add("board", "recorded gates of many kernels in one table, and what changed since the last",
      cli::add_board);
  add("mutants", "the gate's own score: each real bug put back, killed or not, by which case",
      cli::add_mutants);
  add("tolerance", "the error to expect of a case, the most that is right, and rtol/atol for a plain test",
      cli::add_tolerance);
  add("card", "what a kernel rounds, read from its outputs: the contract to declare", cli::add_card);
  add("diagnose", "which conventions a kernel follows, read from its outputs: the declaration to write",
      cli::add_diagnose);
  add("explain", "what a word of the output means: row, head, twin, Bp, bf16, measured ...",
      cli::add_explain);
  add("bench", "kernels against the clock: median, share of the floor, ratio to a peer", cli::add_bench);
  add("probe", "measure the arithmetic of the GPU that the bounds assume", cli::add_probe);
  add("list",
      "systems, forms, kernels, contracts, laws, regimes, keys, conventions, mutants, or what there is of "
      "each "
      "system",
      cli::add_list);
  add("help", "the help of a verb, all verbs, or the manual page", cli::add_help);
  add("version", "the version of this command", cli::add_version);
  add("completion", "completion of verbs and options for bash, zsh or fish", cli::add_completion);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (place.rank > 0) return cli::kPass;  // rank 0 says it, and mpirun ends all at the first other code
    if (error.get_exit_code() != 0) {
      fmt::print(stderr, "samestate: {}\n",
                 cli::bad_call(app, error, std::vector<std::string>(argv + 1, argv + argc)));
      return cli::kUsage;
    }
    (void)app.exit(error);  // --help, --version
    return flushed(cli::kPass);
  }
  const CLI::App* parsed = &app;
  try {
    for (const Verb& verb : verbs) {
      if (!verb.app->parsed()) continue;
      parsed = verb.app;
      cli::join_ranks(verb.app->get_name(), std::vector<std::string>(argv + 1, argv + argc));
      return flushed(verb.command());
    }
  } catch (const Error& error) {
    if (place.rank > 0) return cli::refuse(error.what());
    fmt::print(stderr, "samestate: {}\n", cli::with_option(*parsed, error.what()));
    return cli::kUsage;
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string text = fmt::format("{}: {}", error.path1().string(), error.code().message());
    fmt::print(stderr, "samestate: {}\n", cli::with_option(*parsed, text));
    return cli::kUsage;
  } catch (const std::exception& error) {
    if (std::ferror(stdout) != 0) return cannot_write();
    fmt::print(stderr, "samestate: internal error: {}\n", error.what());
    return cli::kCrash;
  }
  return cli::kUsage;
}

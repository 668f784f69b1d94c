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

/// Reports that stdout could not be written, for example because the disk is full.
int cannot_write() {
  fmt::print(stderr, "samestate: cannot write to stdout: {}\n", std::strerror(errno));
  return cli::kUsage;
}

/// Flushes stdout, because what is still in its buffer is part of the result. If that fails, a pass becomes
/// an error; any other exit code is kept.
int flushed(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  const int without = cannot_write();
  return code == cli::kPass ? without : code;
}

/// Opens /dev/null on those of the descriptors 0 to 2 that the caller had closed. Otherwise a file that this
/// process opens could get such a number and receive what is printed.
void open_standard_descriptors() {
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number) {
    // open() returns the lowest free descriptor, which is `number`.
    if (::fcntl(number, F_GETFD) < 0) (void)::open("/dev/null", number == STDIN_FILENO ? O_RDONLY : O_WRONLY);
  }
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_descriptors();
  cli::end_with_the_reader();
  let_full_files_fail();
  // Only rank 0 prints.
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
      "  samestate gate                        check every kernel, as CI does\n"
      "  samestate gate --plugin mine.so       check the kernels of a plugin of yours\n"
      "  samestate gate --shard 0/4 ..         check a quarter; merge joins the four\n"
      "  samestate fuzz --budget 5m            search for failures and shrink them\n"
      "  samestate repro 'v1 retention T=65'   run one case and explain its verdict\n"
      "  samestate explain twin                explain a word of the output\n"
      "  samestate card --kernel NAME          read from outputs what a kernel rounds\n"
      "  samestate tolerance 'v1 retention'    say which rtol and atol to test with\n"
      "  samestate goldens                     check references against public code\n"
      "  samestate equations --verdict erratum  show the documents' errors, with counterexamples\n"
      "  samestate list kernels                list kernels and their evidence\n\n"
      "Exit codes: 0 pass, 1 numerical failure, 2 bad input, 3 vacuous or too little covered, 4 flaky, 5 "
      "crash,\n"
      "77 nothing could run on this machine.");
  app.formatter(std::make_shared<cli::HelpFormatter>());  // verbs inherit it
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
  add("gate", "check every kernel against the oracle, its twin and the laws, as CI does", cli::add_gate);
  add("fuzz", "search for failures with fresh cases and shrink those that are found", cli::add_fuzz);
  add("repro", "run one case line and explain the verdict", cli::add_repro);
  add("judge", "judge the tensors of a run made elsewhere, without running anything", cli::add_judge);
  add("export", "write cases with their inputs to files, for kernels that cannot be called from here",
      cli::add_export);
  add("serve", "run the gate on kernels of the calling program (protocol on stdin and stdout)",
      cli::add_serve);
  add("goldens", "check the references against tensors of public model code", cli::add_goldens);
  add("equations", "compute every equation of the documents and say whether it holds", cli::add_equations);
  add("identities", "check that the references' forms agree, in float64 and in 50 digits",
      cli::add_identities);
  add("sweep", "measure the error against chunk, length, decay, condition and width", cli::add_sweep);
  add("report", "make one HTML page of recorded runs: error curves, verdicts and evidence", cli::add_report);
  add("merge", "join the shards of a gate, fuzz, sweep or mutants run into one result", cli::add_merge);
  add("scale", "compute how long a run would take on a given number of ranks", cli::add_scale);
  add("compare", "show what changed between two recorded runs, case by case", cli::add_compare);
  add("board", "put recorded gates of many kernels into one table, with what changed", cli::add_board);
  add("mutants", "put known bugs back into kernels, and say which of them the gate catches",
      cli::add_mutants);
  add("tolerance", "say which error to expect and to allow, and which rtol and atol to test with",
      cli::add_tolerance);
  add("card", "find out from a kernel's outputs what it rounds: the contract to declare", cli::add_card);
  add("diagnose", "find out from a kernel's outputs which conventions it follows, to declare them",
      cli::add_diagnose);
  add("explain", "explain a word of the output: row, head, twin, Bp, bf16, measured ...", cli::add_explain);
  add("bench", "time kernels: median, share of the floor, ratio to a peer", cli::add_bench);
  add("probe", "measure the arithmetic of the GPU that the bounds assume", cli::add_probe);
  add("list", "list systems, kernels, contracts, laws, regimes, keys, conventions or mutants", cli::add_list);
  add("help", "show the help of a verb, a list of all verbs, or the manual page", cli::add_help);
  add("version", "print the version of this command", cli::add_version);
  add("completion", "print a script that completes verbs and options in bash, zsh or fish",
      cli::add_completion);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (place.rank > 0)
      return cli::kPass;  // rank 0 reports, and mpirun ends all ranks at the first nonzero code
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

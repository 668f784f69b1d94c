#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "cli/commands.h"
#include "cli/first_screen.h"
#include "cli/man_page.h"
#include "oracles/contract_points.h"
#include "reference/error.h"
#include "samestate_version.h"

namespace samestate::cli {
namespace {

const CLI::App& verb_named(const CLI::App& command, const std::string& name) {
  const auto verbs = command.get_subcommands([](const CLI::App*) { return true; });
  std::vector<std::string_view> known;
  for (const CLI::App* verb : verbs) {
    if (verb->get_name() == name) return *verb;
    known.push_back(verb->get_name());
  }
  const std::vector<std::string_view> near = nearest_names(name, known);
  throw Error(fmt::format("help {}: no such verb{}{}; `samestate help` has them all", name,
                          near.empty() ? "" : "; nearest: ", fmt::join(near, ", ")));
}

}  // namespace

std::string first_screen() {
  return "samestate checks linear-attention kernels. It runs a kernel of yours on planned\n"
         "cases and judges the outputs against float64 references of the equations, within\n"
         "error bounds that are derived and not tuned.\n"
         "\n"
         "  gate       Check a kernel on every case of its plan. This is what CI runs.\n"
         "             samestate gate --subject python:my_file.py:my_kernel\n"
         "  repro      Repeat one case and explain its verdict.\n"
         "             samestate repro 'v1 gated_delta_rule T=65 dk=16 contract=bf16'\n"
         "  diagnose   Find out which conventions a kernel follows.\n"
         "             samestate diagnose --subject ./my_program\n"
         "  tolerance  Say which error to expect, and which rtol and atol to test with.\n"
         "             samestate tolerance 'v1 retention T=64 dk=16 contract=bf16'\n"
         "  sweep      Measure the error against chunk, length and precision.\n"
         "             samestate sweep --quick --out sweep.jsonl\n"
         "\n"
         "Read on:\n"
         "  samestate help                        all verbs, and what the exit codes mean\n"
         "  samestate help VERB                   the options of a verb, with examples\n"
         "  samestate explain WORD                what a word of the output means\n"
         "  samestate help --man | man -l -       the manual page\n"
         "  source <(samestate completion bash)   completion in this shell\n";
}

Command add_help(CLI::App& app) {
  struct Options {
    std::string verb;
    bool man = false;
  };
  auto options = std::make_shared<Options>();
  app.add_option("verb", options->verb, "the verb whose help is shown; without one, all verbs are listed");
  app.add_flag("--man", options->man, "print the manual page of the command, for `man -l -` to show");
  app.footer(
      "  samestate help                      all verbs and the exit codes\n"
      "  samestate help gate                 what `samestate gate --help` prints\n"
      "  samestate help --man | man -l -     the manual page\n");
  return [&app, options] {
    const CLI::App& command = *app.get_parent();
    if (options->man && !options->verb.empty())
      throw Error(fmt::format("help {} --man: there is one manual page for all verbs; leave out {}",
                              options->verb, options->verb));
    if (options->man) {
      fmt::print("{}", man_page(command, SAMESTATE_VERSION));
    } else if (options->verb.empty()) {
      // CLI::App::help would print the help of this verb, which is the one that was parsed.
      fmt::print(
          "{}", command.get_formatter()->make_help(&command, command.get_name(), CLI::AppFormatMode::Normal));
    } else {
      fmt::print("{}", verb_named(command, options->verb).help(command.get_name()));
    }
    return static_cast<int>(kPass);
  };
}

Command add_version(CLI::App& app) {
  return [&app] {
    fmt::print("{}\n", app.get_parent()->version());
    return static_cast<int>(kPass);
  };
}

}  // namespace samestate::cli

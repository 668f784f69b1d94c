#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/options.h"
#include "reference/error.h"
#include "reports/records/files.h"
#include "reports/text/compare_text.h"

namespace samestate::cli {

Command add_compare(CLI::App& app) {
  struct Options {
    std::string before, after, markdown, kernels;
    double factor = 2.0;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  app.footer(
      "Compares two records case by case: what is new, gone, worse or better in the second, the "
      "worst first.\n"
      "\n"
      "  samestate compare baseline.jsonl out/gate.jsonl --markdown compare.md\n"
      "  samestate compare v1.jsonl v2.jsonl --kernels my.delta_rule.v1=my.delta_rule.v2\n"
      "\n"
      "For cuda kernels records have hashes of what each case wrote (docs/do/devices.md): the output "
      "says for how many cases a\n"
      "kernel wrote equal bits, and which differ first. Different bits alone are not a "
      "regression.\n"
      "\n"
      "Exit 1 on a regression: a worse verdict, a ratio that grew beyond the factor (even below "
      "1), or a new case that fails.\n"
      "Exit 2 for bad input. Exit 3 if the two have no case in common, or if one is incomplete: "
      "its run was killed or is still\n"
      "running, so that its closing line is missing. Cases that an incomplete record did not reach "
      "are counted and do not\n"
      "count as gone. Differences in seeds, shards and options are named.");
  app.add_option("before", options->before, "the JSON Lines file of a gate, fuzz or sweep")->required();
  app.add_option("after", options->after, "the JSON Lines file of a later run; the two are compared")
      ->required();
  app.add_option("--factor", options->factor, "a ratio may grow by this factor")
      ->capture_default_str()
      ->check(number_in(1.0, 1e12));
  app.add_option("--kernels", options->kernels,
                 "OLD=NEW: compare kernel OLD of the first record with kernel NEW of the second");
  app.add_flag("--json", options->json, "machine-readable");
  app.add_option("--markdown", options->markdown, "also write a Markdown page");
  return [options] {
    for (const std::string& path : {options->before, options->after}) {
      if (std::filesystem::is_directory(path)) throw Error(path + ": is a folder; name a JSON Lines file");
    }
    RecordFile before = read_json_lines(options->before);
    RecordFile after = read_json_lines(options->after);
    for (const auto& [path, file] :
         {std::pair{&options->before, &before}, std::pair{&options->after, &after}}) {
      if (file->records.empty() && file->points.empty())
        throw Error(*path + ": there is no case in it; name a file that gate, fuzz or sweep wrote");
    }
    if (!options->kernels.empty()) {
      const std::size_t at = options->kernels.find('=');
      if (at == std::string::npos || at == 0 || at + 1 == options->kernels.size())
        throw Error("--kernels " + options->kernels +
                    ": write OLD=NEW, for example my.gated_delta_rule.v1=my.gated_delta_rule.v2");
      const std::string to = options->kernels.substr(at + 1);
      before = of_kernel(std::move(before), options->kernels.substr(0, at), to);
      after = of_kernel(std::move(after), to, to);
    }
    const Comparison comparison = compare(before, after, options->factor);
    if (!options->markdown.empty())
      write_atomically(options->markdown, compare_markdown(comparison, options->before, options->after));
    fmt::print("{}", options->json ? compare_json(comparison) : compare_text(comparison));
    if (comparison.regressions() > 0) return static_cast<int>(kFail);
    const bool little = comparison.common == 0 || comparison.before_cut || comparison.after_cut;
    return static_cast<int>(little ? kVacuous : kPass);
  };
}

}  // namespace samestate::cli

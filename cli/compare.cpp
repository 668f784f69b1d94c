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
      "Case by case what became new, gone, worse or better from the first record to the second, worst "
      "first.\n\n"
      "  samestate compare baseline.jsonl out/gate.jsonl --markdown compare.md\n"
      "  samestate compare v1.jsonl v2.jsonl --kernels my.delta_rule.v1=my.delta_rule.v2\n\n"
      "Of cuda kernels both records have hashes of what each case wrote (docs/do/devices.md): how many cases "
      "of "
      "a "
      "kernel wrote\nequal bits, and the first that differ. Other bits alone are no regression.\n\n"
      "Exit 1 on a regression: a worse verdict, a ratio that grew beyond the factor (even below 1), a new "
      "case that "
      "fails.\n"
      "Exit 2 for bad input, 3 when the two have no case in common, or one is cut: its run was killed or "
      "still goes on, so that\nits closing line is missing. What a cut record did not come to is counted and "
      "not gone; "
      "other seeds, shards and options\nof the two are named.");
  app.add_option("before", options->before, "JSON Lines of gate, fuzz or sweep")->required();
  app.add_option("after", options->after, "the same, later")->required();
  app.add_option("--factor", options->factor, "a ratio may grow by this much")
      ->capture_default_str()
      ->check(number_in(1.0, 1e12));
  app.add_option("--kernels", options->kernels,
                 "OLD=NEW: hold kernel OLD of the first record against kernel NEW of the second");
  app.add_flag("--json", options->json, "machine-readable");
  app.add_option("--markdown", options->markdown, "write a Markdown page too");
  return [options] {
    for (const std::string& path : {options->before, options->after}) {
      if (std::filesystem::is_directory(path)) throw Error(path + ": is a folder; name a JSON Lines file");
    }
    RecordFile before = read_json_lines(options->before);
    RecordFile after = read_json_lines(options->after);
    for (const auto& [path, file] :
         {std::pair{&options->before, &before}, std::pair{&options->after, &after}}) {
      if (file->records.empty() && file->points.empty())
        throw Error(*path + ": no case in it; name a file that gate, fuzz or sweep wrote");
    }
    if (!options->kernels.empty()) {
      const std::size_t at = options->kernels.find('=');
      if (at == std::string::npos || at == 0 || at + 1 == options->kernels.size())
        throw Error("--kernels " + options->kernels +
                    ": OLD=NEW, as in my.gated_delta_rule.v1=my.gated_delta_rule.v2");
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

#include "oracles/proofs/goldens/goldens.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/data_folder.h"

namespace samestate::cli {
namespace {

void print_table(const GoldenReport& report) {
  struct Row {
    double worst = 0.0;
    int comparisons = 0;
    bool passed = true;
    std::string where;
  };
  std::map<std::pair<std::string, std::string>, Row> rows;
  for (const GoldenCheck& check : report.checks) {
    Row& row = rows[{check.file, check.group}];
    ++row.comparisons;
    row.passed = row.passed && check.passed;
    if (!(check.relative_error <= row.worst) || row.where.empty()) {
      row.worst = check.relative_error;
      row.where = check.tensor + ", " + check.form;
    }
  }
  std::size_t file = 4;
  std::size_t group = 5;
  for (const auto& [key, row] : rows) {
    file = std::max(file, key.first.size());
    group = std::max(group, key.second.size());
  }
  fmt::print("{:<{}} {:<{}} {:>5} {:>10}  {:<7}  {}\n", "file", file, "group", group, "runs", "error",
             "verdict", "largest in");
  for (const auto& [key, row] : rows) {
    fmt::print("{:<{}} {:<{}} {:>5} {:>10.2e}  {:<7}  {}\n", key.first, file, key.second, group,
               row.comparisons, row.worst, row.passed ? "pass" : "FAIL", row.where);
  }
}

}  // namespace

Command add_goldens(CLI::App& app) {
  struct Options {
    std::string folder = data_folder("golden");
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  app.footer(
      "Every known group of every *.safetensors file is recomputed in each form and compared; the "
      "limit is 1e-12 of the largest\n"
      "golden value. Exit 1 if a known group fails, 3 if no group is known.");
  app.add_option("folder", options->folder,
                 "a folder of safetensors files (default: those that come with the command)");
  app.add_flag("--json", options->json, "machine-readable");
  return [options] {
    const GoldenReport report = check_goldens(options->folder);
    if (options->json) {
      nlohmann::json out;
      out["checks"] = nlohmann::json::array();
      for (const GoldenCheck& c : report.checks) {
        out["checks"].push_back({{"file", c.file},
                                 {"group", c.group},
                                 {"tensor", c.tensor},
                                 {"form", c.form},
                                 {"relative_error", c.relative_error},
                                 {"limit", c.limit},
                                 {"passed", c.passed}});
      }
      out["unknown"] = report.unknown;
      fmt::print("{}\n", out.dump(2));
    } else {
      print_table(report);
      for (const std::string& unknown : report.unknown) fmt::print("not known yet: {}\n", unknown);
    }
    if (report.checks.empty()) return static_cast<int>(kVacuous);
    return static_cast<int>(report.passed() ? kPass : kFail);
  };
}

}  // namespace samestate::cli

#include "cli/filter.h"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cli/duration.h"
#include "cli/options.h"
#include "harness/processes/workers.h"
#include "reference/error.h"

namespace samestate::cli {

CLI::Option* add_repeatable(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                            const std::string& help) {
  return app.add_option(name, values, help)->take_all()->allow_extra_args(false)->check(named());
}

CLI::Option* add_names(CLI::App& app, const std::string& name, std::string& names, const std::string& help) {
  return app.add_option(name, names, help)->join(',')->allow_extra_args(false)->check(named());
}

CLI::Option* add_plugin_option(CLI::App& app, std::vector<std::string>& plugins) {
  // The workers read it when they restart the subject.
  app.add_option_function<std::string>(
         "--start-timeout",
         [](const std::string& text) {
           ::setenv("SAMESTATE_START_TIMEOUT", std::to_string(seconds_of("--start-timeout", text)).c_str(),
                    1);
         },
         "time that a subject may take to get ready, and for the first call of each variant: 90, 5m "
         "(default: 120 s)")
      ->check([](const std::string& text) -> std::string {
        try {
          return seconds_of("", text) > 0 ? ""
                                          : fmt::format("{}: give a time above 0, such as 90 or 5m", text);
        } catch (const Error& error) {
          return error.what();
        }
      });
  app.add_option_function<int>(
         "--subjects", [](int count) { ::setenv("SAMESTATE_SUBJECTS", std::to_string(count).c_str(), 1); },
         "number of processes of a subject (default: on a GPU one, because each process imports and "
         "compiles the same code; on the CPU as many as --threads)")
      ->check(CLI::Range(1, 1024));
  app.add_option_function<std::string>(
         "--autotune", [](const std::string& how) { ::setenv(kAutotuneVariable, how.c_str(), 1); },
         "how the autotuners of a Python subject choose: first takes the first configuration that runs, "
         "without timing it; cached lets them tune and keeps the result on disk; full lets them tune again "
         "each time (default: first); a failure is repeated with the other setting")
      ->check(CLI::IsMember({"first", "cached", "full"}));
  return add_repeatable(
      app, "--plugin,--subject", plugins,
      "your kernels: a shared library (docs/do/plugin.md), python:NAME, socket:PATH or a command "
      "that speaks the protocol of docs/lookup/subjects.md (repeatable)");
}

void add_filter_options(CLI::App& app, FilterOptions& options) {
  const auto add = [&](const char* name, std::vector<std::string>& values, const std::string& help) {
    add_repeatable(app, name, values, help)->group("Which cases");
  };
  add("--contract", options.contract, "only these contracts: bf16, fp32,fp32_tree, bf16*");
  add("--regime", options.regime, "only these regimes of the data");
  add("--form", options.form, "only cases in these forms");
  add("--law", options.law,
      "only cases of these laws; '*' means every law, and none means only comparisons with the oracle");
  add("--layout", options.layout, "only these layouts in memory: dense, padded, far");
  add("--where", options.where,
      "only cases that fulfil these conditions: T=64..4096, dk=128, 'Hv=2.. D=..512' (all must hold)");
  add("--exclude", options.exclude,
      "no case that fulfils these conditions: regime=measured, 'contract=bf16 T=4096..' (all must hold)");
}

CaseFilter filter_of(const FilterOptions& options) {
  CaseFilter filter;
  const auto add = [&](const char* key, const std::vector<std::string>& values) {
    std::string any;
    for (const std::string& value : values) any += (any.empty() ? "" : ",") + value;
    if (!any.empty()) filter.where(fmt::format("{}={}", key, any), fmt::format("--{}", key));
  };
  add("contract", options.contract);
  add("regime", options.regime);
  add("form", options.form);
  add("law", options.law);
  add("layout", options.layout);
  for (const std::string& text : options.where) filter.where(text);
  for (const std::string& text : options.exclude) filter.exclude(text);
  return filter;
}

CaseFilter filter_of(const std::string& text) {
  FilterOptions options;
  CLI::App app;
  add_filter_options(app, options);
  try {
    app.parse(text);
  } catch (const CLI::ParseError& error) {
    throw Error(fmt::format("filter {}: {}; the run file that holds it was changed", text, error.what()));
  }
  return filter_of(options);
}

const std::string& filter_help() {
  static const std::string text =
      "Which cases: a condition is KEY=VALUE[,VALUE...]. KEY is a key of the case line "
      "(docs/lookup/case-line.md) or a size of a system. VALUE is a name, a pattern with * and ?, a number, "
      "or a range such as 64..4096, 64.. or ..4096, which includes its ends; none stands for a key that the "
      "line does not contain. All conditions of one text must hold together. Each further --where selects "
      "among the cases "
      "that are left, and each further --exclude removes more of them.\n";
  return text;
}

Shard shard_of(const std::string& text) {
  const std::size_t slash = text.find('/');
  try {
    std::size_t used[2] = {0, 0};
    const std::string parts[2] = {text.substr(0, slash), slash == text.npos ? "" : text.substr(slash + 1)};
    const Shard shard{std::stoll(parts[0], &used[0]), std::stoll(parts[1], &used[1])};
    const bool whole = used[0] == parts[0].size() && used[1] == parts[1].size();
    if (whole && shard.index >= 0 && shard.index < shard.count && shard.count <= kMostShards) return shard;
  } catch (const std::exception&) {
  }
  throw Error(fmt::format("--shard {}: write I/N with N in 1..{} and I in 0..N-1", text, kMostShards));
}

std::string listed(const std::vector<std::string>& lines, bool json) {
  std::string text;
  if (json) {
    nlohmann::json rows = nlohmann::json::array();
    for (const std::string& line : lines) rows.push_back({{"line", line}});
    return rows.dump(2) + "\n";
  }
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace samestate::cli

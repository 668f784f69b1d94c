#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/cases/case_filter.h"
#include "harness/cases/shards.h"

/// The options that select the cases of a verb, with one grammar for gate, fuzz, sweep and bench.
namespace samestate::cli {

struct FilterOptions {
  std::vector<std::string> contract, regime, form, law, layout, where, exclude;
};

/// Adds --contract, --regime, --form, --law, --layout, --where and --exclude.
void add_filter_options(CLI::App& app, FilterOptions& options);

/// Throws Error that names value, known values and remedy.
[[nodiscard]] CaseFilter filter_of(const FilterOptions& options);

/// The filter for the output of CaseFilter::text, as stored in a run file. Throws Error as above.
[[nodiscard]] CaseFilter filter_of(const std::string& text);

/// The explanation of the grammar in --help, below the verb's own text.
[[nodiscard]] const std::string& filter_help();

/// The help text of --shard for a verb whose plan ends.
inline constexpr const char* kShardHelp =
    "I/N: only part I of N, from 0; the parts take about equally long (docs/do/shards.md), and `samestate "
    "merge` "
    "joins "
    "them";

/// Parses "I/N". Throws Error that names the limits.
[[nodiscard]] Shard shard_of(const std::string& text);

/// An option that may be repeated, with one value each time, so that it does not swallow the words after it.
CLI::Option* add_repeatable(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                            const std::string& help);

/// The same for names and patterns, which are collected in `names`, separated by commas (wanted_kernels).
CLI::Option* add_names(CLI::App& app, const std::string& name, std::string& names, const std::string& help);

/// Adds --plugin to the verbs that run kernels.
CLI::Option* add_plugin_option(CLI::App& app, std::vector<std::string>& plugins);

/// The output of --list: the lines, one per row, or with `json` [{"line", "kernel", "system" ..}].
[[nodiscard]] std::string listed(const std::vector<std::string>& lines, bool json);

}  // namespace samestate::cli

#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/cases/case_filter.h"
#include "harness/cases/shards.h"

/// Which cases a verb is about, as its options say it: one grammar for gate, fuzz, sweep and bench.
namespace samestate::cli {

struct FilterOptions {
  std::vector<std::string> contract, regime, form, law, layout, where, exclude;
};

/// Adds --contract, --regime, --form, --law, --layout, --where and --exclude.
void add_filter_options(CLI::App& app, FilterOptions& options);

/// Throws Error that names value, known values and remedy.
[[nodiscard]] CaseFilter filter_of(const FilterOptions& options);

/// Of what CaseFilter::text says, as a run file holds it. Throws Error as the above does.
[[nodiscard]] CaseFilter filter_of(const std::string& text);

/// What --help says of the grammar, below a verb's own text.
[[nodiscard]] const std::string& filter_help();

/// What --shard says of itself in the help of a verb whose plan ends.
inline constexpr const char* kShardHelp =
    "I/N: only part I of N, from 0; the parts take alike long (docs/do/shards.md), and `samestate merge` "
    "joins "
    "them";

/// "I/N". Throws Error that names the limits.
[[nodiscard]] Shard shard_of(const std::string& text);

/// An option that may be given again, one value each time: what follows it is not swallowed.
CLI::Option* add_repeatable(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                            const std::string& help);

/// The same for names and patterns, which stand in `names` with commas between them (wanted_kernels).
CLI::Option* add_names(CLI::App& app, const std::string& name, std::string& names, const std::string& help);

/// --plugin of the verbs that run kernels.
CLI::Option* add_plugin_option(CLI::App& app, std::vector<std::string>& plugins);

/// The lines alone, one a row, or with `json` as [{"line", "kernel", "system" ..}]: what --list prints.
[[nodiscard]] std::string listed(const std::vector<std::string>& lines, bool json);

}  // namespace samestate::cli

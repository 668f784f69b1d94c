#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

/// What the parser's own checks let through.
namespace samestate::cli {

/// A number in [least, most]; CLI::Range takes a NaN.
[[nodiscard]] CLI::Validator number_in(double least, double most);

/// Any text but the empty one: a variable that a script did not set is no name.
[[nodiscard]] CLI::Validator named();

/// A seed, as 42 or 0x2a. The parser alone takes -1 and 2^64 for others.
[[nodiscard]] CLI::Validator seed_number();

/// Options that name files to be written, with what they name (empty: not given). Throws Error if two name one
/// file: the second would replace the first. Devices and pipes take both.
void require_different(const std::vector<std::pair<std::string, std::string>>& files);

/// --commit, of the verbs that write records.
void add_commit_option(CLI::App& app, std::string& commit);

}  // namespace samestate::cli

#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

/// Checks that the parser itself lacks.
namespace samestate::cli {

/// A number in [least, most]; CLI::Range accepts NaN.
[[nodiscard]] CLI::Validator number_in(double least, double most);

/// Any text except the empty one: a variable that a script did not set is not a name.
[[nodiscard]] CLI::Validator named();

/// A seed, such as 42 or 0x2a. The parser alone would turn -1 and 2^64 into other numbers.
[[nodiscard]] CLI::Validator seed_number();

/// The arguments are options that name files to be written, with their values (empty if not given). Throws
/// Error if two name the same file, because the second would replace the first. Devices and pipes are allowed
/// twice.
void require_different(const std::vector<std::pair<std::string, std::string>>& files);

/// Adds --commit, for verbs that write records.
void add_commit_option(CLI::App& app, std::string& commit);

}  // namespace samestate::cli

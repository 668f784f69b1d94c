#pragma once

#include <CLI/CLI.hpp>

/// What the parser's own checks let through.
namespace samestate::cli {

/// A number in [least, most]; CLI::Range takes a NaN.
[[nodiscard]] CLI::Validator number_in(double least, double most);

/// Any text but the empty one: a variable that a script did not set is no name.
[[nodiscard]] CLI::Validator named();

/// A seed, as 42 or 0x2a. The parser alone takes -1 and 2^64 for others.
[[nodiscard]] CLI::Validator seed_number();

}  // namespace samestate::cli

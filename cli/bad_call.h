#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>

namespace samestate::cli {

/// One line on a command line that could not be parsed, for who wrote it: which word of which verb, what is known of its
/// kind, and how it is written. `words`: the arguments, without the command.
[[nodiscard]] std::string bad_call(const CLI::App& app, const CLI::ParseError& error,
                                   std::span<const std::string> words);

}  // namespace samestate::cli

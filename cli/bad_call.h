#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>

namespace samestate::cli {

/// One line for the user about a command line that could not be parsed: which word of which verb is wrong,
/// what alternatives there are, and how it is written. `words` are the arguments without the command.
[[nodiscard]] std::string bad_call(const CLI::App& app, const CLI::ParseError& error,
                                   std::span<const std::string> words);

/// An error's message preceded by the option of the verb that named the file or folder in question; unchanged
/// if no option did, or if the message says so itself.
[[nodiscard]] std::string with_option(const CLI::App& verb, const std::string& message);

}  // namespace samestate::cli

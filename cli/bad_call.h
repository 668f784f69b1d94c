#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>

namespace samestate::cli {

/// One line on a command line that could not be parsed, for who wrote it: which word of which verb, what is known of its
/// kind, and how it is written. `words`: the arguments, without the command, at least one.
[[nodiscard]] std::string bad_call(const CLI::App& app, const CLI::ParseError& error,
                                   std::span<const std::string> words);

/// An error's message behind the option of the verb that named the file or folder which it is about; as it is where none did,
/// or where it says so itself.
[[nodiscard]] std::string with_option(const CLI::App& verb, const std::string& message);

}  // namespace samestate::cli

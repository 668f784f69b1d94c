#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

namespace samestate::cli {

/// The manual page of the command in roff (man(7)), made of what `--help` prints: the description, every verb with its options
/// and its footer. The same options give the same page: it holds no date.
[[nodiscard]] std::string man_page(const CLI::App& command, std::string_view version);

}  // namespace samestate::cli

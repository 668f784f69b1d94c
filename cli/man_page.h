#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

namespace samestate::cli {

/// Returns the command's manual page in roff (man(7)), made from what `--help` prints: the description, and every verb
/// with its options and its footer. It contains no date, so that the same options give the same page.
[[nodiscard]] std::string man_page(const CLI::App& command, std::string_view version);

}  // namespace samestate::cli

#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

/// The layout of --help.
namespace samestate::cli {

/// The maximum number of columns in a line of --help.
inline constexpr std::size_t kHelpColumns = 80;

/// Lays out --help in kHelpColumns columns, however its texts were written: paragraphs and descriptions are wrapped
/// between words. An example is a line that begins with blanks and a command; its comment goes below it if both do not
/// fit on one line.
class HelpFormatter : public CLI::Formatter {
 public:
  [[nodiscard]] std::string make_option(const CLI::Option* option, bool is_positional) const override;
  [[nodiscard]] std::string make_subcommand(const CLI::App* sub) const override;
  [[nodiscard]] std::string make_description(const CLI::App* app) const override;
  [[nodiscard]] std::string make_usage(const CLI::App* app, std::string name) const override;
  [[nodiscard]] std::string make_footer(const CLI::App* app) const override;
};

/// Lays out a text of paragraphs, lists and examples in kHelpColumns columns. Consecutive lines that do not begin with
/// blanks form one paragraph.
[[nodiscard]] std::string help_text(std::string_view text);

}  // namespace samestate::cli

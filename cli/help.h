#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

/// How --help is laid out.
namespace samestate::cli {

/// Columns that a line of --help has at most.
inline constexpr std::size_t kHelpColumns = 80;

/// --help in kHelpColumns columns, whatever its texts were written in: paragraphs and descriptions are wrapped between
/// words, and an example, a line that begins with blanks and a command, has its comment below it where both do not fit.
class HelpFormatter : public CLI::Formatter {
 public:
  [[nodiscard]] std::string make_option(const CLI::Option* option, bool is_positional) const override;
  [[nodiscard]] std::string make_subcommand(const CLI::App* sub) const override;
  [[nodiscard]] std::string make_description(const CLI::App* app) const override;
  [[nodiscard]] std::string make_usage(const CLI::App* app, std::string name) const override;
  [[nodiscard]] std::string make_footer(const CLI::App* app) const override;
};

/// A text of paragraphs, lists and examples in kHelpColumns columns. Lines that follow each other without blanks before
/// them are one paragraph.
[[nodiscard]] std::string help_text(std::string_view text);

}  // namespace samestate::cli

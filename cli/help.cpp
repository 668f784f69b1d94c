#include "cli/help.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "reports/text/aligned.h"

namespace samestate::cli {
namespace {

constexpr std::size_t kDescriptionColumn = 26;  // where descriptions begin
constexpr std::size_t kBelowExample = 6;        // where the comment of an example does that stands below it
/// A line that begins with at least this many blanks continues the comment or the description above it.
constexpr std::size_t kGoesOnBehind = 9;

/// Formats "  left    right" and wraps the right part, which gets a line of its own if the left part is too long.
std::string beside_each_other(const std::string& left, std::string_view right, std::size_t column) {
  std::string out = "  " + left;
  if (right.empty()) return out + "\n";
  if (out.size() + 2 > column) {
    out += "\n" + std::string(column, ' ');
  } else {
    out.append(column - out.size(), ' ');
  }
  return out + wrapped(right, kHelpColumns, column, column) + "\n";
}

/// Splits a command into words; a case line in quotes is one word.
std::vector<std::string> arguments_of(std::string_view command) {
  std::vector<std::string> out;
  bool quoted = false, fresh = true;
  for (const char c : command) {
    quoted = quoted != (c == '\'');
    if (c == ' ' && !quoted) {
      fresh = true;
      continue;
    }
    if (fresh) out.emplace_back();
    fresh = false;
    out.back() += c;
  }
  return out;
}

/// Breaks a command over several lines, each but the last with a backslash at its end, so that a shell accepts it as it
/// stands.
std::string continued(std::string_view command, std::size_t begin) {
  std::string out;
  std::size_t column = begin;
  for (const std::string& word : arguments_of(command)) {
    if (!out.empty() && column + 1 + word.size() + 2 > kHelpColumns) {
      out += " \\\n" + std::string(kBelowExample, ' ');
      column = kBelowExample;
    } else if (!out.empty()) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

/// A line of a list or an example: "  left    right".
struct HelpRow {
  std::size_t indent = 0;
  std::string left = {}, right = {};
  std::size_t column = 0;  ///< where the right part begins

  [[nodiscard]] bool is_example() const {
    return left.starts_with("samestate ") || left.starts_with("mpirun ");
  }

  [[nodiscard]] std::string text() const {
    const std::string blanks(indent, ' ');
    std::string out = blanks + (indent + left.size() <= kHelpColumns ? left
                                : is_example()                       ? continued(left, indent)
                                               : wrapped(left, kHelpColumns, indent, indent));
    if (right.empty()) return out + "\n";
    const std::string line =
        out + std::string(std::max<std::size_t>(column, out.size() + 2) - out.size(), ' ');
    if (line.size() + right.size() <= kHelpColumns) return line + right + "\n";
    if (!is_example()) return line + wrapped(right, kHelpColumns, line.size(), line.size()) + "\n";
    return out + "\n" + std::string(kBelowExample, ' ') +
           wrapped(right, kHelpColumns, kBelowExample, kBelowExample) + "\n";
  }
};

HelpRow help_row(std::string_view line) {
  HelpRow row{.indent = line.find_first_not_of(' ')};
  line.remove_prefix(row.indent);
  // A case line in quotes contains only single blanks, so the first double blank is the gap between command and
  // comment.
  const std::size_t gap = line.find("  ");
  row.left = line.substr(0, gap);
  if (gap == line.npos) return row;
  const std::size_t begin = line.find_first_not_of(' ', gap);
  row.right = line.substr(begin);
  row.column = row.indent + begin;
  return row;
}

}  // namespace

std::string help_text(std::string_view text) {
  std::string out, paragraph;
  std::vector<HelpRow> rows;
  const auto finish = [&] {
    if (!paragraph.empty()) out += wrapped(paragraph, kHelpColumns) + "\n";
    for (const HelpRow& row : rows) out += row.text();
    paragraph.clear(), rows.clear();
  };
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t indent = line.find_first_not_of(' ');
    if (indent == line.npos) {
      finish();
      out += '\n';
    } else if (indent == 0) {
      if (!rows.empty()) finish();
      paragraph += std::string(line) + " ";
    } else if (indent >= kGoesOnBehind && !rows.empty()) {
      rows.back().right += " " + std::string(line.substr(indent));
    } else {
      if (!paragraph.empty()) finish();
      rows.push_back(help_row(line));
    }
  }
  finish();
  return out;
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  return beside_each_other(make_option_name(option, is_positional) + make_option_opts(option),
                           make_option_desc(option), kDescriptionColumn);
}

std::string HelpFormatter::make_subcommand(const CLI::App* sub) const {
  constexpr std::size_t kVerbs = 14;
  return beside_each_other(sub->get_display_name(true), sub->get_description(), kVerbs);
}

std::string HelpFormatter::make_description(const CLI::App* app) const {
  return help_text(Formatter::make_description(app));
}

std::string HelpFormatter::make_usage(const CLI::App* app, std::string name) const {
  return wrapped(Formatter::make_usage(app, std::move(name)), kHelpColumns, 2) + "\n";
}

std::string HelpFormatter::make_footer(const CLI::App* app) const {
  return help_text(Formatter::make_footer(app));
}

}  // namespace samestate::cli

#include "cli/man_page.h"

#include <fmt/format.h>

#include <sstream>

namespace samestate::cli {
namespace {

/// Escapes a line of text for roff: backslashes, hyphens that a reader may copy, and a first character that would begin
/// a request.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

/// Writes a text whose own line breaks and columns are kept.
std::string as_it_stands(const std::string& text) {
  std::string out = ".nf\n";
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) out += escaped(line) + "\n";
  return out + ".fi\n";
}

/// Writes an option, or a positional argument, with the values that it takes and its description.
std::string entry(const CLI::Option& option) {
  const bool flag = option.get_items_expected_max() == 0;
  std::string head = fmt::format(".TP\n\\fB{}\\fR", escaped(option.get_name(option.get_positional(), true)));
  if (!flag && !option.get_positional()) head += fmt::format(" \\fI{}\\fR", escaped(option.get_type_name()));
  std::string text = option.get_description();
  // The page may be read on another machine than the one on which it was made, but the default of --threads is the
  // number of cores of the latter.
  if (option.check_lname("threads"))
    text += " (default: one for each core)";
  else if (!option.get_default_str().empty())
    text += fmt::format(" (default: {})", option.get_default_str());
  return fmt::format("{}\n{}\n", head, escaped(text));
}

std::string entries(const CLI::App& of) {
  std::string out;
  for (const CLI::Option* option : of.get_options()) out += entry(*option);
  return out;
}

}  // namespace

std::string man_page(const CLI::App& command, std::string_view version) {
  std::string out = fmt::format(
      ".TH SAMESTATE 1 \"\" \"samestate {}\" \"User Commands\"\n"
      ".SH NAME\nsamestate \\- check linear-attention kernels against references within derived bounds\n"
      ".SH SYNOPSIS\n.B samestate\n.I VERB\n[\\fIOPTIONS\\fR]\n"
      ".SH DESCRIPTION\n",
      version);
  out += as_it_stands(command.get_description());
  out += ".SH OPTIONS\n" + entries(command);
  out += ".SH VERBS\n";
  for (const CLI::App* verb : command.get_subcommands([](const CLI::App*) { return true; })) {
    out += fmt::format(".SS samestate {}\n{}\n", escaped(verb->get_name()), escaped(verb->get_description()));
    out += entries(*verb);
    if (!verb->get_footer().empty()) out += ".PP\n" + as_it_stands(verb->get_footer());
  }
  return out;
}

}  // namespace samestate::cli

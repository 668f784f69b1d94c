#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <ranges>
#include <string>
#include <vector>

#include "cli/commands.h"

/// Completion for three shells, generated from the verbs and options that the parser knows.
namespace samestate::cli {
namespace {

/// The words that a shell offers after an option, or as the verb's own argument.
struct Values {
  std::vector<std::string> words;  ///< the words that the parser accepts
  std::string
      listed;  ///< the topic of `samestate list` that prints them, such as kernels; empty if none does
  [[nodiscard]] bool files() const { return words.empty() && listed.empty(); }
};

struct OptionWords {
  std::vector<std::string> names;  ///< the names with their hyphens
  std::string means;
  bool takes_value = false;
  Values values;
};

struct VerbWords {
  std::string name, means;
  std::vector<OptionWords> options;
  Values argument;  ///< the argument of the verb itself, such as bash in `samestate completion bash`
};

/// Returns the words between the braces of a type's name, where CLI::IsMember puts them.
std::vector<std::string> members_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{'), end = type.find('}');
  if (begin == type.npos || end == type.npos) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

/// Shortens a summary to the part before the first comma or colon, because a menu has little room.
std::string brief(const std::string& text) {
  const std::size_t end = text.find_first_of(",:;(", 12);
  return CLI::detail::trim_copy(text.substr(0, end));
}

OptionWords words_of(const CLI::Option& option, const std::vector<std::string>& topics) {
  OptionWords out;
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  out.means = brief(option.get_description());
  out.takes_value = option.get_items_expected_max() != 0;
  out.values.words = members_of(option);
  for (const std::string& name : option.get_lnames()) {
    if (std::ranges::find(topics, name + "s") != topics.end()) out.values.listed = name + "s";
  }
  return out;
}

std::vector<VerbWords> words_of(const CLI::App& command) {
  const auto verbs = command.get_subcommands([](const CLI::App*) { return true; });
  // An option such as --kernel takes the names that `samestate list kernels` prints.
  std::vector<std::string> topics, names;
  for (const CLI::App* verb : verbs) {
    names.push_back(verb->get_name());
    if (verb->get_name() == "list") topics = members_of(*verb->get_option("what"));
  }
  std::vector<VerbWords> out;
  for (const CLI::App* verb : verbs) {
    VerbWords& words = out.emplace_back(VerbWords{verb->get_name(), brief(verb->get_description()), {}, {}});
    for (const CLI::Option* option : verb->get_options()) {
      if (option->get_positional()) {
        words.argument.words = option->get_name(true) == "verb" ? names : members_of(*option);
      } else {
        words.options.push_back(words_of(*option, topics));
      }
    }
  }
  return out;
}

std::vector<std::string> all_names(const VerbWords& verb) {
  std::vector<std::string> names;
  for (const OptionWords& option : verb.options)
    names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

constexpr const char* kHead = "samestate: verbs and options; written by `samestate completion {}`";
/// Formats a shell command that prints the first column of a listing without its header.
constexpr const char* kListed = "samestate list {} 2>/dev/null | awk 'NR > 1 {{ print $1 }}'";

std::string bash_words(const Values& values) {
  return values.listed.empty() ? fmt::format("'{}'", fmt::join(values.words, " "))
                               : fmt::format("\"$({})\"", fmt::format(fmt::runtime(kListed), values.listed));
}

std::string bash(const std::vector<VerbWords>& verbs) {
  std::vector<std::string> names;
  for (const VerbWords& verb : verbs) names.push_back(verb.name);
  std::string out = fmt::format("# {}\n", fmt::format(fmt::runtime(kHead), "bash"));
  out += fmt::format(
      "_samestate() {{\n"
      "  local word=\"${{COMP_WORDS[COMP_CWORD]}}\" before=\"${{COMP_WORDS[COMP_CWORD-1]}}\" words=''\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    words='{} --help --version'\n"
      "  else\n"
      "    case \"${{COMP_WORDS[1]}} $before\" in\n",
      fmt::join(names, " "));
  for (const VerbWords& verb : verbs) {
    for (const OptionWords& option : verb.options) {
      if (!option.takes_value) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names)
        patterns.push_back(fmt::format("'{} {}'", verb.name, name));
      out += fmt::format("      {}) words={} ;;\n", fmt::join(patterns, "|"), bash_words(option.values));
    }
    std::vector<std::string> free = verb.argument.words;
    const std::vector<std::string> options = all_names(verb);
    free.insert(free.end(), options.begin(), options.end());
    out += fmt::format("      '{} '*) words='{}' ;;\n", verb.name, fmt::join(free, " "));
  }
  // If no word fits, readline's own completion offers file names (-o default).
  return out +
         "    esac\n"
         "  fi\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "}\n"
         "complete -o default -F _samestate samestate\n";
}

/// Removes characters from a text that would end or divide a specification of zsh's _arguments, for use in single
/// quotes.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') continue;
    out += c == '[' ? '(' : c == ']' ? ')' : c == ':' || c == '`' ? ' ' : c;
  }
  return out;
}

std::string zsh_values(const Values& values) {
  if (values.files()) return ":value:_files";
  if (values.listed.empty()) return fmt::format(":value:({})", fmt::join(values.words, " "));
  return fmt::format(":{0}: _samestate_listed {0}",
                     values.listed);  // after a space, _arguments adds no words
}

std::string zsh(const std::vector<VerbWords>& verbs) {
  std::string out = fmt::format("#compdef samestate\n# {}\n", fmt::format(fmt::runtime(kHead), "zsh"));
  out += fmt::format(
      "_samestate_listed() {{\n"
      "  local -a found=(${{(f)\"$({})\"}})\n"
      "  compadd -a found\n"
      "}}\n"
      "_samestate() {{\n"
      "  if ((CURRENT == 2)); then\n"
      "    local -a verbs=(\n",
      fmt::format(fmt::runtime(kListed), "$1"));
  for (const VerbWords& verb : verbs) out += fmt::format("      '{}:{}'\n", verb.name, plain(verb.means));
  out +=
      "    )\n"
      "    _describe verb verbs\n"
      "    return\n"
      "  fi\n"
      "  local verb=\"${words[2]}\"\n"
      "  shift words\n"
      "  ((CURRENT--))\n"
      "  case \"$verb\" in\n";
  for (const VerbWords& verb : verbs) {
    out += fmt::format("    {}) _arguments", verb.name);
    for (const OptionWords& option : verb.options) {
      for (const std::string& name : option.names)
        out += fmt::format(" \\\n      '*{}[{}]{}'", name, plain(option.means),
                           option.takes_value ? zsh_values(option.values) : "");
    }
    out += fmt::format(" \\\n      '*{}' ;;\n", zsh_values(verb.argument));
  }
  return out +
         "  esac\n"
         "}\n"
         // When the file is sourced with `source <(..)`, it defines the completion; when it is autoloaded from $fpath,
         // it is called.
         "if [[ \"${funcstack[1]}\" == _samestate ]]; then _samestate \"$@\"; else compdef _samestate "
         "samestate; "
         "fi\n";
}

std::string fish_values(const Values& values) {
  if (values.files()) return " -r -F";
  if (values.listed.empty()) return fmt::format(" -x -a '{}'", fmt::join(values.words, " "));
  return fmt::format(
      " -x -a '({})'",
      fmt::format("samestate list {} 2>/dev/null | string match -r \"^\\\\S+\" | tail -n +2", values.listed));
}

std::string fish(const std::vector<VerbWords>& verbs) {
  std::string out = fmt::format("# {}\n", fmt::format(fmt::runtime(kHead), "fish"));
  for (const VerbWords& verb : verbs)
    out += fmt::format("complete -c samestate -f -n __fish_use_subcommand -a {} -d '{}'\n", verb.name,
                       plain(verb.means));
  for (const VerbWords& verb : verbs) {
    const std::string here =
        fmt::format("complete -c samestate -n '__fish_seen_subcommand_from {}'", verb.name);
    for (const OptionWords& option : verb.options) {
      std::string names;
      for (const std::string& name : option.names)
        names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      out += fmt::format("{}{}{} -d '{}'\n", here, names,
                         option.takes_value ? fish_values(option.values) : "", plain(option.means));
    }
    if (!verb.argument.words.empty())
      out += fmt::format("{} -f -a '{}'\n", here, fmt::join(verb.argument.words, " "));
  }
  return out;
}

}  // namespace

Command add_completion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  app.add_option("shell", *shell, "the shell for which the script is printed")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  app.footer(
      "An installed package puts these scripts where the shells look for them. To try one:\n\n"
      "  source <(samestate completion bash)\n"
      "  source <(samestate completion zsh)           after `autoload -U compinit; compinit`\n"
      "  samestate completion fish | source\n");
  return [&app, shell] {
    const std::vector<VerbWords> verbs = words_of(*app.get_parent());
    fmt::print("{}", *shell == "bash" ? bash(verbs) : *shell == "zsh" ? zsh(verbs) : fish(verbs));
    return static_cast<int>(kPass);
  };
}

}  // namespace samestate::cli

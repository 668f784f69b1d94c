#include "cli/bad_call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "oracles/contract_points.h"

namespace samestate::cli {
namespace {

std::string nearest(std::string_view word, const std::vector<std::string>& all) {
  const std::vector<std::string_view> known(all.begin(), all.end());
  const std::vector<std::string_view> near = nearest_names(word, known);
  return near.empty() ? "" : fmt::format("; nearest: {}", fmt::join(near, ", "));
}

std::vector<std::string> long_options(const CLI::App& of) {
  std::vector<std::string> names;
  for (const CLI::Option* option : of.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

/// Returns the first word that looks like a long option but is not one of the verb's; empty if there is none.
std::string no_option(const CLI::App& verb, std::span<const std::string> words) {
  const std::vector<std::string> known = long_options(verb);
  for (const std::string& word : words) {
    const std::string name = word.substr(0, word.find('='));
    if (name.size() > 2 && name.starts_with("--") && std::ranges::find(known, name) == known.end())
      return name;
  }
  return "";
}

const CLI::App* verb_of(const CLI::App& app, std::string_view word) {
  for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (word == one->get_name()) return one;
  }
  return nullptr;
}

/// Handles a positional word for which the verb has no place left. The parser's error names it last.
std::string no_place(const CLI::App& verb, const std::string& word) {
  const std::vector<std::string> known = long_options(verb);
  std::vector<std::string> ways;
  for (const char* option : {"--kernel", "--system", "--id", "--name"}) {
    if (std::ranges::find(known, option) != known.end()) ways.push_back(fmt::format("{} {}", option, word));
  }
  if (word.starts_with("v1 "))
    return "this verb does not take a case line; `samestate repro` and `tolerance` take one, and `--where` "
           "of "
           "gate and fuzz takes its keys";
  return fmt::format("'{}' belongs to no option{}{}", word, ways.empty() ? "" : "; perhaps ",
                     fmt::join(ways, " or "));
}

/// Describes the first required argument that was not given.
std::string missing(const CLI::App& verb) {
  for (const CLI::Option* option : verb.get_options()) {
    if (option->get_required() && option->count() == 0)
      return fmt::format("{} is missing: {}", option->get_name(), option->get_description());
  }
  return "";
}

}  // namespace

std::string bad_call(const CLI::App& app, const CLI::ParseError& error, std::span<const std::string> words) {
  const auto verbs = [&] {
    std::vector<std::string> names;
    for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(one->get_name());
    return names;
  };
  const std::string all_verbs = "`samestate --help` has them all";
  const std::string& first = words.front();
  if (first.starts_with('-')) {
    const std::string name = no_option(app, words);
    if (!name.empty() && verb_of(app, name) == nullptr) {
      const std::string near = nearest(name, long_options(app));
      return fmt::format("{}: no such option before a verb{}; `samestate --help` has them all", name, near);
    }
    return "no verb, as in `samestate gate`; " + all_verbs;
  }
  const CLI::App* verb = verb_of(app, first);
  if (verb == nullptr)
    return fmt::format("{}: no such verb{}; {}", first, nearest(first, verbs()), all_verbs);
  const std::string help = fmt::format("`samestate {} --help`", first);
  if (const std::string name = no_option(*verb, words); !name.empty()) {
    return fmt::format("{}: no such option of {}{}; {} has them all", name, first,
                       nearest(name, long_options(*verb)), help);
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    if (std::ranges::find(words, "v1") != words.end())
      return "quote the line, so that it is one argument: samestate repro 'v1 SYSTEM ..'";
    const std::string text = error.what();
    const std::size_t at = text.rfind(": ");
    return fmt::format("{}: {}; {} has them all", first,
                       no_place(*verb, at == text.npos ? text : text.substr(at + 2)), help);
  }
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    if (const std::string what = missing(*verb); !what.empty())
      return fmt::format("{}: {}; {} says more", first, what, help);
  }
  return fmt::format("{}: {}; {} says more", first, error.what(), help);
}

std::string with_option(const CLI::App& verb, const std::string& message) {
  if (message.starts_with("--")) return message;  // it is about an option that it names
  for (const char* name :
       {"--write", "--read", "--out", "--dump", "--tensors", "--jsonl", "--junit", "--markdown", "--coverage",
        "--corpus", "--baseline", "--write-baseline", "--checkpoint", "--mutants", "--equations",
        "--evidence", "--trace", "--products"}) {
    const CLI::Option* option = verb.get_option_no_throw(name);
    if (option == nullptr || message.find(name) != message.npos) continue;
    for (const std::string& place : option->results()) {
      // A time such as 20s, which --mutants of tolerance takes, is not the name of a file.
      const bool time = place.find_first_not_of("0123456789.smh") == place.npos;
      if (place.empty() || time || message.find(place) == message.npos) continue;
      // Unless a colon follows it, the place is part of a sentence or of a longer name.
      return fmt::format("{}{}{}", name, message.starts_with(place + ":") ? " " : ": ", message);
    }
  }
  return message;
}

}  // namespace samestate::cli

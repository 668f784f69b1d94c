#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/commands.h"
#include "fuzz/mutants/mutant.h"
#include "fuzz/search/bug_conditions.h"
#include "harness/cases/case_filter.h"
#include "harness/cases/form_words.h"
#include "harness/cases/key_words.h"
#include "harness/cases/keys.h"
#include "harness/cases/system.h"
#include "harness/subjects/conventions.h"
#include "oracles/contract_points.h"
#include "oracles/contracts.h"
#include "oracles/named_points.h"
#include "oracles/systems/system_points.h"
#include "reference/error.h"
#include "reports/text/words.h"

namespace samestate::cli {
namespace {

struct ExplainOptions {
  std::vector<std::string> words;
  std::string word;  ///< the words joined, such as "worst at"
  bool json = false, markdown = false, case_line = false;
};

/// One meaning of a name, and the kind of thing that it names.
struct Meaning {
  std::string kind, name, means;
};

/// Explains what is rounded at a point, in which systems, and how a contract switches it.
std::string meaning_of(Point point) {
  const std::string_view use[] = {"a result that a kernel may keep in 16 bit",
                                  "a product whose operands a tf32 unit rounds",
                                  "a product and its result: operands in tf32, or the result in 16 bit"};
  const std::vector<std::string_view> systems = systems_of(point);
  const bool product = point.row().use == PointUse::product;
  return fmt::format("{} It is {}, {}{}; a kernel that rounds nothing there promises contract={}+{}:fp32",
                     point.row().means, use[static_cast<std::size_t>(point.row().use)],
                     systems.empty() ? "which no system's form has by itself"
                                     : fmt::format("in {}", fmt::join(systems, ", ")),
                     point.row().of.empty() ? "" : fmt::format("; goes with {}", point.row().of),
                     product ? "tf32" : "bf16", point.name());
}

/// Returns the meaning from every table that has the name, because a name may be both a regime and a word of the
/// glossary, for example.
std::vector<Meaning> meanings_of(const std::string& name) {
  std::vector<Meaning> out;
  if (const Word* word = word_named(name))
    out.push_back({"word", std::string(word->word), plain_text(word->means)});
  const auto add = [&](const std::string& kind, std::string_view of, std::string_view means) {
    if (of != name) return;
    for (const Meaning& m : out) {
      if (m.kind == kind && m.means == means) return;
    }
    out.push_back({kind, std::string(of), std::string(means)});
  };
  for (const NamedContract& row : contracts()) add("contract", row.contract.name, row.summary);
  for (const ContractPoint& point : contract_points())
    add("point of a contract", point.name,
        fmt::format("{}; values: {}", point.means, fmt::join(point.values, ", ")));
  if (const std::optional<Point> point = point_named(name)) add("rounding point", name, meaning_of(*point));
  if (name.find('+') != name.npos) {
    const Contract& c = contract_named(name);
    std::vector<std::string> changes;
    for (const std::string_view switched : switched_points(c.name)) {
      const Point point = require_point(switched);
      changes.push_back(fmt::format("{}:{} ({})", switched, switched_value(c, point), point.row().means));
    }
    for (const ContractPoint& point : contract_points()) {
      if (c.name.find("+" + std::string(point.name) + ":") != c.name.npos)
        changes.push_back(fmt::format("{}:{} ({})", point.name, point.value(c), point.means));
    }
    add("contract", name, fmt::format("{} with {}", base_of(c), fmt::join(changes, ", ")));
  }
  for (const Regime& row : regimes())
    add("regime of the recurrent family", row.name,
        fmt::format("{}{}", row.summary, row.exact ? "; judged bit for bit" : ""));
  for (const Regime& row : tensor_regimes()) add("regime of operators", row.name, row.summary);
  for (const Law& row : laws())
    add("law", row.name, fmt::format("{}; tried on {} (ledger {})", row.says, tried_on(row), row.ids));
  using OfForm = std::pair<std::string_view, std::string_view>;  // its name and what it means
  std::map<OfForm, std::vector<std::string_view>> forms;
  for (const System* system : systems()) {
    add("system", system->name,
        fmt::format("{}; forms {}", system->equation, fmt::join(system->form_names(), ", ")));
    if (const Operator* op = system->name == name ? find_operator(name) : nullptr; op != nullptr) {
      std::vector<std::string> has;
      for (const Point& point : points_of(*op)) has.push_back(point.name());
      if (!has.empty())
        add("rounding points of the system", name,
            fmt::format("{}; `samestate list points` says what each is", fmt::join(has, ", ")));
    }
    for (const CaseSize& size : system->sizes) {
      if (size.own)
        add("size", size.name,
            fmt::format("{}: {} ({}..{}, default {})", system->name, size.summary, size.least, size.most,
                        size.standard));
    }
    for (const std::string_view form : system->form_names())
      forms[{form, form_means(system->name, form)}].push_back(system->name);
  }
  for (const auto& [form, of] : forms)
    add("form", form.first, fmt::format("{}; of {}", form.second, fmt::join(of, ", ")));
  for (const KeyWords& key : key_words())
    add("key of the case line", key.name, fmt::format("{}; values: {}", key.means, key.takes));
  for (const Convention& row : conventions()) {
    std::vector<std::string_view> values;
    for (const ConventionValue& value : row.values) {
      values.push_back(value.word);
      add("value of the convention " + std::string(row.key), value.word, value.gives);
    }
    add("convention of a declaration", row.key,
        fmt::format("{}: {}; of {}", row.about, fmt::join(values, ", "), name_of(row.of)));
  }
  for (const Edge& edge : edges()) add("edge", edge.name, edge.summary);
  for (const Mutant& m : all_mutants()) {
    add("mutant", m.name, m.summary);
    if (m.fault == name) add("fault of mutants", m.fault, m.summary);
    add("bug", m.bug, fmt::format("{} (mutant {})", m.summary, m.name));
  }
  for (const NotModelled& n : not_modelled()) add("bug", n.bug, fmt::format("no mutant: {}", n.reason));
  if (!out.empty()) return out;
  // A gate of several words, such as "segment row", is explained word by word.
  std::istringstream parts(name);
  for (std::string part; parts >> part;)
    if (const Word* word = word_named(part); word != nullptr && part != name)
      out.push_back({"word", std::string(word->word), plain_text(word->means)});
  return out;
}

int run_explain(ExplainOptions options) {
  options.word = fmt::format("{}", fmt::join(options.words, " "));
  if (options.markdown) return fmt::print("{}", words_markdown()), kPass;
  if (options.case_line) return fmt::print("{}", case_line_markdown()), kPass;
  if (options.word.empty()) {
    std::string all;
    for (const Word& row : words()) all += fmt::format("  {:<18} {}\n", row.word, plain_text(row.means));
    fmt::print("{}", all);
    return kPass;
  }
  const std::vector<Meaning> found = meanings_of(options.word);
  if (found.empty()) {
    const std::vector<std::string_view> words = words_near(options.word);
    std::vector<std::string> near(words.begin(), words.end());
    for (std::string& point : nearest_points(options.word)) near.push_back(std::move(point));
    throw Error(
        fmt::format("explain {}: no such word, contract, point, regime, law, system, form, key, size, edge, "
                    "bug or mutant{}; "
                    "`samestate explain` lists the words{}",
                    options.word, near.empty() ? "" : fmt::format("; nearest: {}", fmt::join(near, ", ")),
                    all_mutants().empty() ? "; this build has no mutants and no bugs" : ""));
  }
  if (options.json) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const Meaning& m : found) rows.push_back({{"name", m.name}, {"kind", m.kind}, {"means", m.means}});
    fmt::print("{}\n", rows.dump(2));
    return kPass;
  }
  for (const Meaning& m : found)
    fmt::print("{}{}: {}\n", m.name, m.kind == "word" ? "" : fmt::format(" ({})", m.kind), m.means);
  return kPass;
}

}  // namespace

Command add_explain(CLI::App& app) {
  auto options = std::make_shared<ExplainOptions>();
  app.footer(
      "  samestate explain row          explain a word of a verdict\n"
      "  samestate explain lambda       explain a term of a bound; also Bp, Bc, R, hard, twin, piece ...\n"
      "  samestate explain bf16         explain a contract, regime, law, system, form, key, size, edge or "
      "mutant by its name\n"
      "  samestate explain              print the whole glossary\n\n"
      "The pages docs/lookup/words.md and docs/lookup/case-line.md are what --markdown and --case-line "
      "print.");
  app.add_option("word", options->words, "the word or words to explain (default: print the whole glossary)");
  app.add_flag("--json", options->json, "machine-readable");
  app.add_flag("--markdown", options->markdown, "print the page docs/lookup/words.md");
  app.add_flag("--case-line", options->case_line, "print the page docs/lookup/case-line.md");
  return [options] { return run_explain(*options); };
}

}  // namespace samestate::cli

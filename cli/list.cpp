#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/commands.h"
#include "cli/data_folder.h"
#include "cli/filter.h"
#include "cli/listing.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "fuzz/mutants/mutant.h"
#include "harness/cases/key_words.h"
#include "harness/cases/system.h"
#include "harness/subjects/conventions.h"
#include "oracles/contract_points.h"
#include "oracles/contracts.h"
#include "oracles/named_points.h"
#include "oracles/systems/system_points.h"
#include "reference/error.h"
#include "reports/records/evidence.h"
#include "reports/text/aligned.h"
#include "samestate_kernel_sources.h"

namespace samestate::cli {
namespace {

std::string joined(const auto& names) { return fmt::format("{}", fmt::join(names, " ")); }

Listing list_systems() {
  Listing out{{"system", "forms", "sizes", "has", "equation"}, {}};
  for (const System* s : systems()) {
    std::vector<std::string> sizes;
    for (const CaseSize& p : s->sizes) sizes.push_back(fmt::format("{}={}", p.name, p.standard));
    out.rows.push_back({std::string(s->name), joined(s->form_names()), joined(sizes),
                        fmt::format("{}", fmt::join(names_of(s->properties), ", ")),
                        std::string(s->equation)});
  }
  return out;
}

Listing list_forms() {
  std::map<std::string_view, std::vector<std::string_view>> by_form;
  for (const System* s : systems()) {
    for (std::string_view form : s->form_names()) by_form[form].push_back(s->name);
  }
  Listing out{{"form", "systems"}, {}};
  for (const auto& [form, have] : by_form) out.rows.push_back({std::string(form), joined(have)});
  return out;
}

Listing list_contracts() {
  Listing out{{"contract", "what it promises"}, {}};
  for (const NamedContract& c : contracts()) out.rows.push_back({c.contract.name, std::string(c.summary)});
  return out;
}

/// Returns the words that a contract may use for a point of a system.
std::string taken_at(Point point) {
  const std::string_view words[] = {"bf16 fp16", "tf32 tf32_truncated tf32x3",
                                    "bf16 fp16 tf32 tf32_truncated tf32x3"};
  return fmt::format("fp32 {}", words[static_cast<std::size_t>(point.row().use)]);
}

/// Lists every rounding point of the systems: where it is, what is rounded there, and what it means.
Listing list_points() {
  Listing out{{"point", "rounds", "systems", "what it is"}, {}};
  for (const Point& point : named_points()) {
    const std::string_view rounds[] = {"result", "operands", "operands or result"};
    const std::string means(point.row().means);
    out.rows.push_back(
        {point.name(), std::string(rounds[static_cast<std::size_t>(point.row().use)]),
         joined(systems_of(point)),
         fmt::format("{}{}{}", means,
                     point.row().of.empty() ? "" : fmt::format(" Goes with {}.", point.row().of),
                     point.row().only_if_named ? " Kept in fp32 unless a contract names the point." : "")});
  }
  return out;
}

/// Lists every point of every contract, one complete row each, for programs.
Listing list_contract_points() {
  Listing out{{"contract", "point", "value", "takes", "what it is"}, {}};
  for (const NamedContract& c : contracts()) {
    for (const ContractPoint& point : contract_points()) {
      out.rows.push_back({c.contract.name, std::string(point.name), point.value(c.contract),
                          joined(point.values), std::string(point.means)});
    }
    for (const Point& point : named_points()) {
      const Format format = format_at(c.contract, point.row().use);
      if (format != Format::none)
        out.rows.push_back({c.contract.name, point.name(),
                            std::string(name_of(point.row().only_if_named ? Format::fp32 : format)),
                            fmt::format("fp32 {}", name_of(format)), std::string(point.row().means)});
    }
  }
  return out;
}

/// Lists the points and the values that each accepts: at a point of a system, the format that the contract
/// has for it, or fp32.
Listing list_grammar() {
  Listing out{{"point", "what it is", "takes"}, {}};
  for (const ContractPoint& point : contract_points())
    out.rows.push_back({std::string(point.name), std::string(point.means), joined(point.values)});
  for (const Point& point : named_points())
    out.rows.push_back({point.name(), std::string(point.row().means), taken_at(point)});
  return out;
}

/// Lists the value of every point in every contract.
Listing list_values() {
  Listing out{{"contract", "point", "value"}, {}};
  for (const NamedContract& c : contracts()) {
    for (const ContractPoint& point : contract_points())
      out.rows.push_back({c.contract.name, std::string(point.name), point.value(c.contract)});
  }
  return out;
}

/// Returns the names of the systems that have it.
std::string systems_with(auto&& has) {
  std::vector<std::string_view> out;
  for (const System* s : systems()) {
    if (has(*s)) out.push_back(s->name);
  }
  return joined(out);
}

/// Lists one row per law: which systems have it, and why.
Listing list_laws() {
  Listing out{{"law", "systems", "tried on", "ledger", "says"}, {}, "systems"};
  for (const Law& law : laws()) {
    const auto has = [&](const System& s) { return std::ranges::find(s.laws, &law) != s.laws.end(); };
    out.rows.push_back({std::string(law.name), systems_with(has), tried_on(law), std::string(law.ids),
                        std::string(law.says)});
  }
  return out;
}

Listing list_regimes() {
  Listing out{{"regime", "systems", "judged", "inputs"}, {}, "systems"};
  const auto add = [&](const Regime& r, std::string_view judged) {
    const auto has = [&](const System& s) { return std::ranges::find(s.regimes, &r) != s.regimes.end(); };
    out.rows.push_back({std::string(r.name), systems_with(has), std::string(judged), std::string(r.summary)});
  };
  for (const Regime& r : regimes()) add(r, r.exact ? "bit for bit" : "bound");
  for (const Regime& r : tensor_regimes()) add(r, "running error");
  return out;
}

/// Lists every key of a case line, including sizes of single systems, in the order of canonical lines.
Listing list_keys() {
  Listing out{{"key", "of", "values", "default", "means"}, {}};
  for (const KeyRow& key : key_rows())
    out.rows.push_back({key.name, key.of, key.takes, key.standard, key.means});
  return out;
}

/// Lists one row per value of a convention.
Listing list_conventions() {
  Listing out{{"convention", "value", "of", "the subject is given"}, {}};
  for (const Convention& row : conventions()) {
    for (const ConventionValue& value : row.values)
      out.rows.push_back({std::string(row.key), std::string(value.word), std::string(name_of(row.of)),
                          std::string(value.gives)});
  }
  return out;
}

/// Lists the variants that a kernel chooses among, in order of choice.
Listing list_variants(const std::vector<std::string>& plugins) {
  Listing out{{"kernel", "variant", "limits", "why", "contracts"}, {}};
  const KernelTable table = kernel_table(plugins);
  for (const KernelRow& k : table.all()) {
    for (const Variant& v : k.variants) out.rows.push_back({k.name, v.name, v.limits, v.why, v.contracts});
    if (k.variants.empty()) out.rows.push_back({k.name, "", "", "", joined(k.contracts)});
  }
  return out;
}

Listing list_mutants() {
  Listing out{{"bug", "mutant", "smoke", "what is wrong"}, {}};
  for (const Mutant& m : all_mutants()) {
    out.rows.push_back(
        {m.bug, m.name, m.smoke ? "smoke" : "",
         m.equivalent.empty() ? m.summary : m.summary + " (equivalent: " + m.equivalent + ")"});
  }
  for (const NotModelled& n : not_modelled()) {
    out.rows.push_back({std::string(n.bug), "none", "", std::string(n.reason)});
  }
  return out;
}

/// Says what recorded runs on a device show about a kernel; they are fresh while its sources are those that
/// ran.
std::string state_of(const std::vector<Evidence>& all, const std::vector<TimedEvidence>& timings,
                     std::string_view kernel) {
  std::string text;
  for (const Evidence& e : all) {
    if (e.kernel != kernel) continue;
    const bool fresh = is_fresh(e.kernel_sources, SAMESTATE_CUDA_SOURCES, kernel);
    text += fmt::format("{}{}: {} passed, {} failed on {}", text.empty() ? "" : "; ",
                        fresh ? "fresh" : "stale", e.passed, e.failed, e.device);
  }
  double fresh = 0.0, stale = 0.0;
  for (const TimedEvidence& e : timings) {
    if (e.timed.record.kernel != kernel) continue;
    double& best = is_fresh(e.kernel_sources, SAMESTATE_CUDA_SOURCES, kernel) ? fresh : stale;
    best = std::max(best, e.timed.share);
  }
  if (fresh > 0.0 || stale > 0.0)
    text += fmt::format("{}at best {:.1f} % of the floor{}", text.empty() ? "" : "; ",
                        100 * (fresh > 0.0 ? fresh : stale), fresh > 0.0 ? "" : " (sources before)");
  return text.empty() ? "none" : text;
}

Listing list_kernels(const std::vector<std::string>& plugins, const std::string& evidence_folder) {
  Listing out{{"kernel", "device", "evidence", "contracts"}, {}};
  const KernelTable table = kernel_table(plugins);
  const std::vector<Evidence> evidence = read_evidence(evidence_folder);
  const std::vector<TimedEvidence> timings = read_timings(evidence_folder);
  std::set<std::string> here;
  for (const KernelRow& k : table.all()) {
    here.insert(k.name);
    out.rows.push_back({k.name, k.device,
                        k.device == "cpu" ? "runs here" : state_of(evidence, timings, k.name),
                        joined(k.contracts) + (k.any_contract ? " any" : "")});
  }
  for (const Evidence& e : evidence) {
    if (here.insert(e.kernel).second)
      out.rows.push_back({e.kernel, "cuda", state_of(evidence, timings, e.kernel), "not in this build"});
  }
  return out;
}

void print(const Listing& listing, bool json) {
  if (json) {
    nlohmann::json out = nlohmann::json::array();
    for (const auto& row : listing.rows) {
      nlohmann::json object;
      for (std::size_t i = 0; i < row.size(); ++i) object[listing.header[i]] = row[i];
      out.push_back(std::move(object));
    }
    fmt::print("{}\n", out.dump(2));
    return;
  }
  std::vector<std::vector<std::string>> rows = {listing.header};
  rows.insert(rows.end(), listing.rows.begin(), listing.rows.end());
  constexpr std::ptrdiff_t kNamed = 4;
  const auto counted = std::ranges::find(listing.header, listing.counted) - listing.header.begin();
  for (std::size_t i = 1; i < rows.size() && counted < std::ssize(listing.header); ++i) {
    std::string& names = rows[i][static_cast<std::size_t>(counted)];
    if (const auto more = std::ranges::count(names, ' '); more >= kNamed)
      names = fmt::format("{} of {}", more + 1, systems().size());
  }
  fmt::print("{}", aligned(rows, columns_of_tables()));
}

/// Prints a block for each convention: what it is about and which declarations have it, then what the subject is given
/// under each value, beginning with the default. Lines have at most 80 columns.
void print_conventions() {
  constexpr std::size_t kColumns = 80, kValues = 15;
  for (const Convention& row : conventions()) {
    fmt::print("{}: {} ({})\n", row.key, row.about, name_of(row.of));
    for (const ConventionValue& value : row.values) {
      std::string text = wrapped(value.gives, std::string(kValues, ' '), kColumns);
      const std::string word = fmt::format("  {} ", value.word);
      fmt::print("{}\n", text.replace(0, word.size(), word));
    }
  }
}

/// Prints one block per kernel: its variants, what each keeps and takes, and below that why.
void print_variants(const std::vector<std::string>& plugins) {
  const KernelTable table = kernel_table(plugins);
  std::size_t others = 0;
  for (const KernelRow& k : table.all()) {
    if (k.variants.empty()) {
      ++others;
      continue;
    }
    std::vector<std::vector<std::string>> rows;
    for (const Variant& v : k.variants) {
      rows.push_back({"", v.name, fmt::format("{}; {}", v.contracts, v.limits)});
      if (!v.why.empty()) rows.push_back({"", "", v.why});
    }
    fmt::print("{}\n{}", k.name, aligned(rows, columns_of_tables()));
  }
  fmt::print("{} kernels choose among nothing: `samestate list kernels` has them\n", others);
}

}  // namespace

Command add_list(CLI::App& app) {
  struct Options {
    std::string what = "systems";
    bool json = false;
    bool variants = false;
    std::vector<std::string> plugins;
    std::string evidence = data_folder("evidence");
  };
  auto options = std::make_shared<Options>();
  app.add_option("what", options->what,
                 "what to list: systems, forms, kernels, contracts, points, laws, regimes, keys of a case "
                 "line, conventions "
                 "of a declaration, mutants, or coverage, which counts what each system has")
      ->capture_default_str()
      ->check(CLI::IsMember({"systems", "forms", "kernels", "contracts", "points", "laws", "regimes", "keys",
                             "conventions", "mutants", "coverage"}))
      ->option_text("LIST");
  app.add_flag("--json", options->json, "machine-readable");
  app.add_flag(
      "--long", options->variants,
      "for kernels, the variants among which each kernel of the recurrent family chooses by contract and "
      "shape; for "
      "contracts, the rounding points, the values that they take, and the value of each in every contract");
  app.add_option("--evidence", options->evidence, "read recorded runs on devices from this folder");
  add_plugin_option(app, options->plugins);
  return [options] {
    const std::string& what = options->what;
    if (what == "contracts" && options->variants && !options->json) {
      print(list_grammar(), false);
      fmt::print("\n");
      print(list_values(), false);
      return static_cast<int>(kPass);
    }
    if (options->evidence != data_folder("evidence") && !std::filesystem::is_directory(options->evidence))
      throw Error(options->evidence +
                  ": no such folder of evidence; name one that `samestate gate --jsonl` wrote to");
    if (what == "conventions" && !options->json) {
      print_conventions();
      return static_cast<int>(kPass);
    }
    if (what == "kernels" && options->variants && !options->json) {
      print_variants(options->plugins);
      return static_cast<int>(kPass);
    }
    const Listing listing = what == "systems"                        ? list_systems()
                            : what == "forms"                        ? list_forms()
                            : what == "kernels" && options->variants ? list_variants(options->plugins)
                            : what == "kernels" ? list_kernels(options->plugins, options->evidence)
                            : what == "contracts" && options->variants ? list_contract_points()
                            : what == "contracts"                      ? list_contracts()
                            : what == "points"                         ? list_points()
                            : what == "laws"                           ? list_laws()
                            : what == "keys"                           ? list_keys()
                            : what == "conventions"                    ? list_conventions()
                            : what == "mutants"                        ? list_mutants()
                            : what == "coverage"                       ? list_coverage(options->evidence)
                                                                       : list_regimes();
    print(listing, options->json);
    if (all_mutants().empty() && (what == "mutants" || what == "kernels" || what == "coverage"))
      fmt::print(stderr, "samestate: this build contains the judge only. {}.\n", kWithEverything);
    return static_cast<int>(kPass);
  };
}

}  // namespace samestate::cli

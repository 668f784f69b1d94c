#include "cli/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "fixtures/quote.h"
#include "harness/cases/case_filter.h"
#include "harness/processes/line_process.h"
#include "harness/processes/pool.h"
#include "harness/records/hash.h"
#include "harness/records/record.h"
#include "harness/subjects/edge.h"
#include "harness/subjects/library.h"
#include "harness/subjects/subject.h"
#include "oracles/contracts.h"
#include "reference/error.h"
#include "samestate_kernel_sources.h"
#include "samestate_version.h"
#ifdef SAMESTATE_HAVE_CUDA
#include "optimized/cuda/cuda_kernels.h"
#include "optimized/cuda/cuda_operator_kernels.h"
#endif

namespace samestate::cli {
namespace {

/// A driver that does not answer within this time counts as absent.
[[maybe_unused]] constexpr double kLookSeconds = 60.0;

/// Returns the time limits of a start, which an interrupt also ends.
SubjectPatience patience_of_command() {
  SubjectPatience patience = patience_of_environment();
  // In the calling processes, which are forked off later, this is the interrupt that was noted.
  patience.stop = [] { return HeldInterrupts::came() || interrupted(); };
  return patience;
}

/// Asks a library once per command, however often it is named.
const Library& library_of(const std::string& spec) {
  static std::map<std::string, Library> known;
  const auto found = known.find(spec);
  if (found != known.end()) return found->second;
  const HeldInterrupts held;
  return known.emplace(spec, declared_library(spec, patience_of_command())).first->second;
}

}  // namespace

bool is_subject(const std::string& spec) {
  if (spec.starts_with("python:") || spec.starts_with("socket:")) return true;
  if (is_elf(spec) && library_of(spec).in_c) return true;
  if (spec.find(' ') != std::string::npos && !std::filesystem::exists(spec)) return true;
  std::error_code none;
  const std::filesystem::path path(spec);
  return path.filename().string().find(".so") == std::string::npos &&
         std::filesystem::is_regular_file(path, none) && ::access(spec.c_str(), X_OK) == 0;
}

namespace {

/// Throws Error if it has no rows.
const Subject& loaded(const Library& library) {
  if (!library.problem.empty()) throw Error(library.problem);
  return library.subject;
}

/// Starts a subject once per command, however often it is asked for.
const Subject& subject_of(const std::string& spec) {
  static std::map<std::string, Subject> known;
  const auto found = known.find(spec);
  if (found != known.end()) return found->second;
  if (is_elf(spec) && library_of(spec).in_c) return loaded(library_of(spec));
  const HeldInterrupts held;
  return known.emplace(spec, load_subject(spec, patience_of_command())).first->second;
}

}  // namespace

KernelTable kernel_table(const std::vector<std::string>& plugins) {
  KernelTable table(call_kernels());
  for (const std::string& plugin : plugins) {
    const bool subject = is_subject(plugin);
    const std::vector<CallKernel>& rows = subject ? subject_of(plugin).rows : loaded(library_of(plugin)).rows;
    try {
      table.add(rows);
      if (!subject) continue;
      for (const Declaration& d : subject_of(plugin).kernels) {
        const bool converts = given_of(d.conventions, Contract{}) != Given{};
        table.converts(
            d.name, d.strided, d.variant,
            !converts ? std::function<Given(const Contract&)>()
                      : [conventions = d.conventions](
                            const Contract& contract) { return given_of(conventions, contract); },
            formats_of(d.conventions));
        table.set(d.name, &KernelRow::interpreted, d.interpreted);
        table.set(d.name, &KernelRow::only_asked, d.only_asked);
        table.set(d.name, &KernelRow::deterministic, d.deterministic);
      }
    } catch (const Error& error) {
      throw Error(fmt::format("{} {}: {}", subject ? "subject" : "plugin", plugin, error.what()));
    }
  }
  table.added_by(plugin_options(plugins));
  return table;
}

KernelTable kernel_table(const std::vector<std::string>& plugins, const CaseFilter& filter, bool strict) {
  KernelTable table = kernel_table(plugins);
  for (const KeyCondition& condition : filter.conditions()) {
    if (condition.key != "contract") continue;
    for (const KeyCondition::Value& value : condition.any) {
      if (value.text.find('+') != std::string::npos && value.text.find_first_of("*?") == std::string::npos)
        table.keep(value.text);
    }
  }
  if (strict) table.hold_exact();
  return table;
}

std::string kernels_asked(const std::string& asked, const KernelTable& table, const std::string& system,
                          const std::string& device, const CaseFilter& filter) {
  if (!asked.empty()) return asked;
  const bool by_pass = std::ranges::count(filter.conditions(), "pass", &KeyCondition::key) > 0;
  std::vector<std::string_view> all, kept;
  for (const KernelRow& row : table.added()) {
    if (row.only_asked && !by_pass && system.empty()) continue;
    all.emplace_back(row.name);
    if (is_among(system, row.system->name) && (device.empty() || row.device == device))
      kept.emplace_back(row.name);
  }
  return fmt::format("{}", fmt::join(kept.empty() ? all : kept, ","));
}

Case about_brought(Case c, const KernelTable& table) {
  if (!c.kernel.empty() || table.added().empty()) return c;
  const Resolved r(c);
  const std::string own = table.choose(r).named->name;
  std::vector<std::string> able, keeping, all;
  for (const KernelRow& row : table.added()) {
    all.push_back(fmt::format("{} ({} form={})", row.name, row.system->name, row.form));
    if (row.system != r.system || !r.system->evaluates(r, row.form)) continue;
    able.push_back("kernel=" + row.name);
    if (row.any_contract || std::ranges::find(row.contracts, c.contract) != row.contracts.end())
      keeping.push_back(row.name);
  }
  const std::string brought = table.added().front().options;
  if (able.empty())
    throw Error(
        fmt::format("the line names no kernel, and none of{} computes {} form={}: {}; change form=, "
                    "or append kernel={} for one of this build",
                    brought, c.system, c.form, fmt::join(all, ", "), own));
  if (keeping.size() > 1 || (keeping.empty() && able.size() > 1))
    throw Error(fmt::format("the line names no kernel, and{} has several for it; append one of {}", brought,
                            fmt::join(able, " or ")));
  c.kernel = keeping.empty() ? able.front().substr(std::string_view("kernel=").size()) : keeping.front();
  return c;
}

KernelTable table_for(const KernelTable& table, const Case& c) {
  KernelTable out = table;
  out.keep(c.contract);
  return out;
}

std::string plugin_identities(const std::vector<std::string>& plugins) {
  std::string text;
  for (const std::string& plugin : plugins) {
    if (is_subject(plugin)) {
      const Subject& subject = subject_of(plugin);
      std::string declared = subject.about;
      for (const Declaration& d : subject.kernels) declared += d.name + d.about;
      text += fmt::format("{}{} ({:016x}) {}", text.empty() ? "" : ", ", plugin, hash_of(declared),
                          subject.about);
      continue;
    }
    const std::filesystem::path path(plugin);
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    if (!file) throw Error(plugin + ": cannot be read");
    text += fmt::format("{}{} ({:016x})", text.empty() ? "" : ", ", path.filename().string(), hash_of(bytes));
  }
  return text;
}

std::vector<std::string> said_by_subjects(const std::vector<std::string>& plugins) {
  std::vector<std::string> out;
  for (const std::string& plugin : plugins) {
    if (!is_subject(plugin)) continue;
    const auto about = nlohmann::json::parse(subject_of(plugin).about, nullptr, /*allow_exceptions=*/false);
    if (!about.is_object() || !about.contains("interpreter") || !about["interpreter"].is_string()) continue;
    out.push_back(fmt::format("{}: {}", plugin, quote(about["interpreter"].get<std::string>(), 200)));
  }
  return out;
}

std::string plugin_options(const std::vector<std::string>& plugins) {
  std::string text;
  for (const std::string& plugin : plugins) {
    if (plugin.starts_with("socket:") && std::getenv("SAMESTATE_SERVED") != nullptr) {
      text += kOfClient;
      continue;
    }
    const std::string_view option = is_subject(plugin) ? " --subject " : " --plugin ";
    if (plugin.find_first_of(" \t\"'`$&|;<>()*?[]#~!\\") == std::string::npos) {
      text += std::string(option) + plugin;
      continue;
    }
    text += std::string(option) + shell_quoted(plugin);
  }
  return text;
}

Accelerator accelerator() {
  Accelerator found;
#ifdef SAMESTATE_HAVE_CUDA
  const JobResult looked = run_apart(
      []() -> std::string {
        const auto device = cuda_device();
        if (!device) return "\t\t";
        return device->name + "\t" + device->driver + "\t" + device->runtime + ", products by " +
               cuda::product_library();
      },
      kLookSeconds);
  std::istringstream fields(looked.text);
  for (std::string* field : {&found.name, &found.driver, &found.toolkit}) std::getline(fields, *field, '\t');
#endif
  return found;
}

Run this_run(const Accelerator& device, const std::vector<std::string>& plugins, const std::string& commit) {
  return {SAMESTATE_VERSION,
          commit,
          device.name.empty() ? "cpu" : device.name,
          device.driver,
          device.toolkit,
          device.name.empty() ? "" : SAMESTATE_CUDA_SOURCES,
          plugin_identities(plugins)};
}

void require_promise(const Case& c, const KernelTable& table) {
  const KernelRow& row = *table.choose(Resolved(c)).named;
  if (std::find(row.contracts.begin(), row.contracts.end(), c.contract) != row.contracts.end()) return;
  throw Error(fmt::format(
      "contract={}: {} promises only {}; change contract= or --kernel: `samestate list kernels` shows "
      "the promises, `samestate list contracts` what each means",
      c.contract, row.name, fmt::join(row.contracts, ", ")));
}

std::string nearest_cards(std::span<const Record> records) {
  std::int64_t far = 0;
  const Record* worst = nullptr;
  for (const Record& r : records) {
    if (!contract_named(r.contract).nearest || r.judgement.twin_ratio <= 1.0) continue;
    ++far;
    if (worst == nullptr || r.judgement.twin_ratio > worst->judgement.twin_ratio) worst = &r;
  }
  if (worst == nullptr) return "";
  return fmt::format(
      "{} with nearest cards are beyond the twin's limit, at most {:.3g} times as far; this is reported but "
      "not "
      "gated (--strict "
      "gates); `samestate card --kernel {}` reads the card\n",
      far == 1 ? "1 case" : fmt::format("{} cases", far), worst->judgement.twin_ratio, worst->kernel);
}

int exit_code_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass:
      return kPass;
    case Verdict::fail:
      return kFail;
    case Verdict::vacuous:
      return kVacuous;
    case Verdict::flaky:
      return kFlaky;
    case Verdict::crash:
    case Verdict::timeout:
      return kCrash;
    case Verdict::unsupported:
    case Verdict::skipped:
      return kNothingRan;
  }
  return kCrash;
}

}  // namespace samestate::cli

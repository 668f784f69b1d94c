#include "cli/script.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/table.h"
#include "fixtures/quote.h"
#include "harness/processes/line_process.h"
#include "harness/systems/recurrent_system.h"
#include "oracles/reasons.h"
#include "reports/records/evidence.h"
#include "reports/records/files.h"
#include "reports/records/summary.h"
#include "samestate_kernel_sources.h"
#include "samestate_version.h"

namespace samestate::cli {
namespace {

constexpr std::string_view kPython = "python:";
constexpr double kImportSeconds = 300.0;  // enough for a package that compiles or downloads nothing

/// Returns the kernels that a script calls: two for the family if calls with and without chunks may follow
/// each other.
std::vector<std::string> kernels_called(const Resolved& r, const KernelTable& table) {
  const KernelChoice choice = table.choose(r);
  const bool both =
      choice.chunked != nullptr && choice.unchunked != nullptr && choice.chunked != choice.unchunked;
  if (both && (r.form->decodes || r.law != nullptr)) return {choice.chunked->name, choice.unchunked->name};
  return {choice.named->name};
}

/// Returns the Python subject that a kernel belongs to; empty if it belongs to none.
std::string python_subject(const KernelRow& row, const std::vector<std::string>& plugins) {
  for (const std::string& plugin : plugins) {
    // A row's options are those that load it, as they are printed.
    if (plugin.starts_with(kPython) && row.options.find(plugin_options({plugin})) != std::string::npos)
      return plugin.substr(kPython.size());
  }
  return "";
}

void ask_python(ScriptWords& words, const std::string& subject, const std::vector<std::string>& kernels) {
  const char* named = std::getenv("SAMESTATE_PYTHON");
  std::string command =
      fmt::format("exec {} -m samestate.scripting {}", named != nullptr && *named != '\0' ? named : "python3",
                  shell_quoted(subject));
  for (const std::string& kernel : kernels) command += " " + shell_quoted(kernel);
  LineProcess process = LineProcess::start(command, "--script");
  const LineProcess::Said said = process.receive(kImportSeconds);
  if (!said.wrong.empty()) {
    const std::string how = process.stop(true);
    throw Error(fmt::format("--script: the call of {} could not be written as Python: {}{}{}", quote(subject),
                            said.wrong, how.empty() ? "" : ", with ", how));
  }
  const auto answer = nlohmann::json::parse(said.line, nullptr, /*allow_exceptions=*/false);
  const auto text = [&](const char* key) {
    return answer.is_object() && answer.contains(key) && answer[key].is_string()
               ? answer[key].get<std::string>()
               : "";
  };
  if (const std::string error = text("error"); !error.empty())
    throw Error(fmt::format("--script: {}", error));
  words.call = text("text"), words.usage = text("usage"), words.needs = text("needs");
  if (words.call.empty())
    throw Error(fmt::format(
        "--script: {} answered {} instead of a call; install the Python package of this command's version",
        quote(command), quote(said.line.substr(0, 80))));
}

}  // namespace

void add_script_options(CLI::App& app, ScriptOptions& options) {
  app.add_option(
         "--script", options.file,
         "write one Python file that shows the run without samestate, as for an issue (docs/do/replay.md)")
      ->check([](const std::string& text) {
        return text.empty() ? std::string("is empty; give a name") : std::string();
      });
  app.add_flag("--force", options.force, "with --script: overwrite the file if it exists");
}

void require_script_writable(const ScriptOptions& options) {
  if (options.file.empty()) {
    if (options.force) throw Error("--force needs --script");
    return;
  }
  if (std::filesystem::exists(options.file) && !options.force)
    throw Error(fmt::format("--script {}: the file exists; overwrite it with --force", options.file));
  require_writable(std::filesystem::path(options.file));
}

ScriptWords script_words(const Case& c, const KernelTable& table, const std::vector<std::string>& plugins) {
  const Resolved r(c);
  const KernelRow& row = *table.choose(r).named;
  ScriptWords words;
  words.repeat = fmt::format("samestate repro{} {}", row.options, shell_quoted(format_case(c)));
  words.recorded =
      fmt::format("{:%Y-%m-%d} by samestate {}", fmt::gmtime(std::time(nullptr)), SAMESTATE_VERSION);
  if (const std::string sources = sources_of(SAMESTATE_CUDA_SOURCES, row.name); !sources.empty())
    words.recorded += fmt::format(" (kernel sources {})", sources);
  if (!plugins.empty()) words.recorded += ", " + plugin_identities(plugins);
  if (const std::string subject = python_subject(row, plugins); !subject.empty())
    ask_python(words, subject, kernels_called(r, table));
  return words;
}

void write_script(const ScriptOptions& options, ScriptWords words, const Record& record, const Trace& trace,
                  const Explanation& explanation) {
  const Judgement& j = record.judgement;
  if (is_failure(j.verdict)) {
    words.sentence = j.reason.empty() ? std::string(name_of(j.verdict)) : j.reason;
    if (!std::isnan(j.expected) || !std::isnan(j.actual))
      words.sentence +=
          fmt::format(", worst at {}: expected {:.9g}, actual {:.9g}", place_of(j), j.expected, j.actual);
    words.sentence += ".";
    for (std::string pattern : explanation.patterns) {
      // The recipient of the script does not know a mutant's name.
      if (const std::size_t mutant = pattern.rfind(kOfMutant); mutant != pattern.npos) pattern.erase(mutant);
      words.sentence += fmt::format(" It looks like this: {}.", pattern);
    }
  }
  write_atomically(options.file, script_of(record, trace, words));
}

}  // namespace samestate::cli

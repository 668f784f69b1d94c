#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/commands.h"
#include "cli/filter.h"
#include "cli/options.h"
#include "cli/table.h"
#include "fixtures/safetensors.h"
#include "fuzz/plan/plan.h"
#include "harness/systems/saved_run.h"
#include "harness/systems/tolerances.h"
#include "reference/error.h"
#include "reports/records/files.h"

namespace samestate::cli {
namespace {

namespace fs = std::filesystem;

struct ExportOptions {
  PlanOptions plan;
  FilterOptions filter;
  std::string out;
  bool expected = false;
  std::vector<std::string> plugins;
};

/// Returns the case as one call on dense tensors, whose outputs any program may write; nullopt if it needs
/// more than that.
std::optional<Case> as_one_call(Case c) {
  const Resolved r(c);
  if (r.law != nullptr || r.form->decodes || r.c.ranks > 1 || c.lead + c.slack > 0) return std::nullopt;
  c.layout = Case{}.layout, c.final_state = Case{}.final_state, c.repeat = false;
  c.kernel.clear();
  return c;
}

/// Writes what the oracle expects of each output, under its name in the case's file, and how far an element
/// of a correct kernel may deviate, as NAME_limit, all in float64; NaN where the judge checks neither.
void write_expected(const fs::path& path, const Case& c, const KernelTable& table) {
  const Resolved r(c);
  const TolerancesOfCase found = tolerances_of(c, table);
  if (found.outputs.empty())
    throw Error(fmt::format("--expected of {}: {}", format_case(c), found.record.judgement.reason));
  std::vector<Tensor> tensors;
  for (const TensorSpec& spec : r.system->signature(r.c).outputs) {
    std::vector<std::int64_t> shape(spec.shape.begin(), spec.shape.end());
    shape.insert(shape.begin(), spec.axis == Axis::state && r.form->packed ? std::ssize(c.lengths) : c.B);
    std::int64_t size = 1;
    for (const std::int64_t extent : shape) size *= extent;
    const std::vector<double> none(static_cast<std::size_t>(size), std::nan(""));
    const std::string name = fmt::format("{}{}", r.system->in_file.output, spec.name);
    Tensor value{name, DType::f64, shape, none};
    Tensor limit{name + "_limit", DType::f64, shape, none};
    for (std::size_t b = 0; b < found.expected.size(); ++b) {
      const OutputBlock& block = found.expected[b];
      if (block.output != spec.name) continue;
      const BlockPlace place = place_of(r, spec, shape, block.sequence, block.head);
      for (Index i = 0; i < block.values.rows(); ++i) {
        for (Index j = 0; j < block.values.cols(); ++j) {
          const auto at = static_cast<std::size_t>(place.first + i * place.stride + j);
          value.values.at(at) = block.values(i, j);
          limit.values.at(at) = found.limits[b].size() > 0 ? found.limits[b](i, j) : std::nan("");
        }
      }
    }
    tensors.push_back(std::move(value));
    tensors.push_back(std::move(limit));
  }
  write_safetensors(path, tensors, {{"format", "samestate-expected-1"}, {"case", format_case(c)}});
}

int run_export(ExportOptions options) {
  // This comes before the plan is made, which takes a while.
  if (fs::exists(options.out) && (!fs::is_directory(options.out) || !fs::is_empty(options.out)))
    throw Error(options.out + ": exists and is not an empty folder; name another");
  require_writable(fs::path(options.out) / "manifest.json");
  options.plan.filter = filter_of(options.filter);
  const KernelTable table = kernel_table(options.plugins, options.plan.filter);
  options.plan.kernel = kernels_asked(options.plan.kernel, table, options.plan.system, options.plan.device,
                                      options.plan.filter);
  const std::int64_t most = options.plan.max_cases;
  options.plan.max_cases = 0;
  std::vector<Case> cases;
  std::map<std::string, std::string> forms;  ///< by line, the form of a kernel that runs the case
  std::int64_t of_devices = 0;
  for (const Case& c : plan_cases(table, options.plan)) {
    std::optional<Case> one = as_one_call(c);
    // A gate also plans edge cases that a kernel must refuse; a file cannot ask its reader whether to take
    // them.
    if (!one) continue;
    const KernelRow& kernel = *table.choose(Resolved(c)).named;
    if (!within_limits(kernel, *one)) continue;
    // Expected values come from a run, and not every machine has a GPU.
    if (options.expected && options.plan.device.empty() && kernel.device != "cpu") {
      ++of_devices;
      continue;
    }
    if (forms.emplace(format_case(*one), kernel.form).second) cases.push_back(std::move(*one));
  }
  if (of_devices > 0)
    fmt::print(
        stderr,
        "samestate: --expected: {} case(s) of GPU kernels were left out; --device cuda includes them\n",
        of_devices);
  if (cases.empty())
    throw Error(
        "no case that fits these filters is a single call on dense tensors, so there is nothing to write; "
        "give wider filters");
  const std::int64_t total = std::ssize(cases);
  fs::create_directories(options.out);
  nlohmann::ordered_json manifest{{"format", "samestate-export-1"},
                                  {"cases", nlohmann::ordered_json::array()}};
  const std::int64_t count = most > 0 ? std::min(most, total) : total;
  for (std::int64_t i = 0; i < count; ++i) {
    const Case& c = cases[static_cast<std::size_t>(i * total / count)];
    const std::string name = fmt::format("{:05}.safetensors", i);
    Record record;
    record.line = format_case(c);
    record.kernel = "elsewhere";
    const Trace run = unwritten_run(Resolved(c), forms.at(record.line));
    write_run_file(fs::path(options.out) / name, run_file_of(record, run), named_shapes);
    nlohmann::ordered_json entry{{"file", name}, {"line", record.line}};
    if (options.expected) {
      const std::string beside = fmt::format("{:05}.expected.safetensors", i);
      write_expected(fs::path(options.out) / beside, c, table);
      entry["expected"] = beside;
    }
    manifest["cases"].push_back(std::move(entry));
  }
  write_atomically(fs::path(options.out) / "manifest.json", manifest.dump(1) + "\n");
  fmt::print("{} cases of {} in {}: write the outputs (now NaN) into each file, then `samestate judge {}`\n",
             count, total, options.out, options.out);
  return kPass;
}

}  // namespace

Command add_export(CLI::App& app) {
  auto options = std::make_shared<ExportOptions>();
  options->plan.max_cases = 200;
  app.footer(
      "Writes cases of the plan as files, for kernels that cannot be called from here: one "
      "safetensors file per case (in the\n"
      "format of `repro --dump`) with its inputs and with NaN for its outputs, and manifest.json. "
      "Write the outputs with any\n"
      "program; `samestate judge DIR` then judges them. Cases that need more than one call are "
      "left out: laws, decoding,\n"
      "calls over ranks, and tokens of no sequence.\n"
      "\n"
      "  samestate export --system gated_delta_rule --form chunked --contract bf16 --out cases\n"
      "  samestate judge cases --junit cases.xml\n"
      "\n"
      "With --flashinfer-bench the Python package writes FlashInfer-Bench's definitions and "
      "workloads instead; its own options\n"
      "may follow (docs/lookup/subjects.md):\n"
      "  samestate export --flashinfer-bench DIR\n"
      "  samestate judge --flashinfer-bench DIR --solution FILE\n"
      "\n" +
      filter_help());
  app.add_option("--out", options->out, "the folder to write, which must be new or empty")
      ->required()
      ->check(named());
  app.add_flag("--expected", options->expected,
               "also write, for each case, the oracle's values and the largest error of a correct kernel "
               "for each element, in float64 (rows and heads have further limits, which judge applies)");
  add_names(app, "--system", options->plan.system, "only these systems (patterns are allowed)");
  add_names(app, "--kernel", options->plan.kernel, "only cases of these kernels, within their limits");
  app.add_option("--max-cases", options->plan.max_cases,
                 "at most this many cases, evenly spread over the plan (0: all)")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--effort", options->plan.effort, "as in gate")
      ->capture_default_str()
      ->check(number_in(0.0, 1e4));
  app.add_option("--seed", options->plan.seed, "seed of the drawn cases")->capture_default_str();
  add_filter_options(app, options->filter);
  add_plugin_option(app, options->plugins);
  return [options] { return run_export(*options); };
}

}  // namespace samestate::cli

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

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

/// The case as one call on dense tensors, whose outputs anything may write; nothing where it is more than that.
std::optional<Case> as_one_call(Case c) {
  const Resolved r(c);
  if (r.law != nullptr || r.form->decodes || r.c.ranks > 1 || c.lead + c.slack > 0) return std::nullopt;
  if (r.system->in_file.none() && (c.T == 0 || c.B == 0)) return std::nullopt;
  c.layout = Case{}.layout, c.final_state = Case{}.final_state, c.repeat = false;
  c.kernel.clear();
  return c;
}

/// What the oracle expects of each output of the case, by its name in the case's file, and how far off an element of a
/// right kernel may be, NAME_limit; NaN where the judge looks at neither. In float64.
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
  // Before the plan is made, which takes a while.
  if (fs::exists(options.out) && (!fs::is_directory(options.out) || !fs::is_empty(options.out)))
    throw Error(options.out + ": is there and no empty folder; name another");
  require_writable(fs::path(options.out) / "manifest.json");
  options.plan.filter = filter_of(options.filter);
  const KernelTable table = kernel_table(options.plugins, options.plan.filter);
  options.plan.kernel = kernels_asked(options.plan.kernel, table, options.plan.system, options.plan.device);
  const std::int64_t most = options.plan.max_cases;
  options.plan.max_cases = 0;
  std::vector<Case> cases;
  std::set<std::string> seen;
  std::int64_t of_devices = 0;
  for (const Case& c : plan_cases(table, options.plan)) {
    std::optional<Case> one = as_one_call(c);
    // A gate plans edges that a kernel must refuse, too; of a file nobody is asked whether he takes it.
    if (!one) continue;
    const KernelRow& kernel = *table.choose(Resolved(c)).named;
    if (!within_limits(kernel, *one)) continue;
    // What is expected is told of a run, and not every machine has a device.
    if (options.expected && options.plan.device.empty() && kernel.device != "cpu") {
      ++of_devices;
      continue;
    }
    if (seen.insert(format_case(*one)).second) cases.push_back(std::move(*one));
  }
  if (of_devices > 0)
    fmt::print(
        stderr,
        "samestate: --expected: {} case(s) of kernels of a device left out; --device cuda takes them\n",
        of_devices);
  if (cases.empty()) throw Error("no case of these filters is one call on dense tensors: nothing to write");
  const std::int64_t total = std::ssize(cases);
  fs::create_directories(options.out);
  nlohmann::ordered_json manifest{{"format", "samestate-export-1"},
                                  {"cases", nlohmann::ordered_json::array()}};
  const std::int64_t count = most > 0 ? std::min(most, total) : total;
  for (std::int64_t i = 0; i < count; ++i) {
    const Case& c = cases[static_cast<std::size_t>(i * total / count)];
    const std::string name = fmt::format("{:05}.safetensors", i);
    write_run_file(fs::path(options.out) / name, unwritten_run(Resolved(c), "elsewhere"));
    nlohmann::ordered_json entry{{"file", name}, {"line", format_case(c)}};
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
      "Writes cases of the plan as files, for kernels that nothing here can call: one safetensors file a "
      "case (as of "
      "`repro --dump`)\n"
      "with its inputs and outputs of NaN, and manifest.json. Whatever writes the outputs, in any language, "
      "`samestate "
      "judge DIR`\n"
      "judges them. Cases that are more than one call are left out: laws, decoding, calls over ranks, tokens "
      "of "
      "no sequence.\n\n"
      "  samestate export --system gated_delta_rule --form chunked --contract bf16 --out cases\n"
      "  samestate judge cases --junit cases.xml\n\n"
      "FlashInfer-Bench's definitions and workloads instead, by the Python package, whose words may follow "
      "(docs/lookup/subjects.md):\n"
      "  samestate export --flashinfer-bench DIR\n"
      "  samestate judge --flashinfer-bench DIR --solution FILE\n\n" +
      filter_help());
  app.add_option("--out", options->out, "the folder to write, new or empty")->required()->check(named());
  app.add_flag(
      "--expected", options->expected,
      "beside each case what the oracle expects and the largest error of a right kernel, element by element, "
      "in float64 (a row and a head have limits of their own, which judge knows)");
  add_names(app, "--system", options->plan.system, "only these systems, with patterns");
  add_names(app, "--kernel", options->plan.kernel, "only cases of these kernels, inside their limits");
  app.add_option("--max-cases", options->plan.max_cases, "at most this many, spread over the plan (0: all)")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--effort", options->plan.effort, "as of gate")
      ->capture_default_str()
      ->check(number_in(0.0, 1e4));
  app.add_option("--seed", options->plan.seed, "of the drawn cases")->capture_default_str();
  add_filter_options(app, options->filter);
  add_plugin_option(app, options->plugins);
  return [options] { return run_export(*options); };
}

}  // namespace samestate::cli

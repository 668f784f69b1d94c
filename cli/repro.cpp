#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <utility>

#include "cli/commands.h"
#include "cli/duration.h"
#include "cli/isolated.h"
#include "cli/options.h"
#include "cli/table.h"
#include "fixtures/run_file.h"
#include "fuzz/search/search.h"
#include "fuzz/shrink.h"
#include "harness/cases/systems.h"
#include "harness/explain/explain.h"
#include "harness/run/saved_run.h"
#include "oracles/contracts.h"
#include "reports/summary.h"

namespace samestate::cli {
namespace {

struct ReproOptions {
  std::string line, kernel, dump, timeout = "10m", shrink_budget = "60s";
  std::vector<std::string> plugins;
  bool shrink = false;
};

void print_record(const Record& record) {
  const Judgement& j = record.judgement;
  fmt::print("case      {}\n", record.line);
  fmt::print("kernel    {} on {}\n", record.kernel, record.device);
  fmt::print("verdict   {}{}{}\n", name_of(j.verdict), j.reason.empty() ? "" : ": ", j.reason);
  if (j.verdict == Verdict::skipped || j.verdict == Verdict::unsupported || j.verdict == Verdict::crash ||
      j.verdict == Verdict::timeout || j.verdict == Verdict::flaky) {
    return;
  }
  fmt::print("gate      {}\n", j.gate);
  fmt::print("ratio     {:.6g}   (error {:.6g} of a bound of {:.6g})\n", j.ratio, j.error, j.bound);
  fmt::print(
      "gates     row {:.4g}   head {:.4g}   state {:.4g}   hard {:.4g}   twin {:.4g}   median row {:.4g}\n",
      j.row_ratio, j.head_ratio, j.state_ratio, j.hard_ratio, j.twin_ratio, j.median_ratio);
  fmt::print("worst at  {}\n", place_of(j.worst));
  fmt::print("          expected {:.9g}, actual {:.9g}\n", j.expected, j.actual);
  fmt::print("rows      {} compared, relative RMS error of o {:.3g}\n", j.rows, j.relative_rms);
}

void print_explanation(const Explanation& e) {
  const char* title = "compared  ";
  for (const std::string& line : e.compared) fmt::print("{}{}\n", std::exchange(title, "          "), line);
  title = "program   ";
  for (std::size_t i = 0; i < e.program.size(); ++i) {
    fmt::print("{}{:>2}. {}\n", std::exchange(title, "          "), i + 1, e.program[i]);
  }
  title = "differs   ";
  for (const std::string& line : e.differs) fmt::print("{}{}\n", std::exchange(title, "          "), line);
  title = "looks like";
  for (const std::string& line : e.patterns) fmt::print("{} {}\n", std::exchange(title, "          "), line);
  title = "values    ";
  for (const ExplainedValue& v : e.values) {
    fmt::print("{}{}: {} {:.9g}, {} {:.9g}\n", std::exchange(title, "          "), v.place, e.expected,
               v.expected, e.actual, v.actual);
  }
  title = "bound     ";
  for (const BoundTerm& term : e.terms) {
    fmt::print("{}{:<28} {:.4g}\n", std::exchange(title, "          "), term.name, term.value);
  }
}

int repro_here(const Case& c, const KernelTable& table, const ReproOptions& options) {
  Trace trace;
  const Record record = run_case(c, table, 1, &trace);
  print_record(record);
  if (record.judgement.verdict == Verdict::fail) print_explanation(explain(c, trace));
  if (!options.dump.empty()) {
    write_run_file(options.dump, run_file_of(record, trace));
    fmt::print("tensors   {}\n", options.dump);
  }
  return exit_code_of(record.judgement.verdict);
}

/// The smallest case that fails alike, or the case itself where it is flaky.
Shrunk shrink_case(const Case& c, const KernelTable& table, const ReproOptions& options) {
  Workers worker(runner_of(table), {1, seconds_of("--timeout", options.timeout)});
  ShrinkOptions how;
  how.fresh = [&](const Case& smaller) { return worker.run_fresh(smaller); };
  how.budget = seconds_of("--shrink-budget", options.shrink_budget);
  Shrunk small = shrink(
      c, [&](const Case& smaller) { return worker.run_one(smaller); }, how);
  fmt::print("shrunk    {} elements of {:.0f} in {} runs, {:.1f} s{}\n", size_of_case(small.smallest),
             size_of_case(c), small.runs, small.seconds,
             small.complete ? "" : "; not finished: give more --shrink-budget");
  return small;
}

/// The kernel runs in a child: a crash or a hang is a verdict here too.
int run_repro(const ReproOptions& options) {
  const KernelTable table = kernel_table(options.plugins);
  Case c = parse_case(options.line);
  if (!options.kernel.empty()) c.kernel = options.kernel;
  const double timeout = seconds_of("--timeout", options.timeout);
  (void)planned_record(c, table);
  if (options.shrink) {
    const Shrunk small = shrink_case(c, table, options);
    if (small.finding.judgement.verdict == Verdict::flaky) {
      print_record(record_of(c, table, small.finding));
      return kFlaky;
    }
    c = small.smallest;
  }
  return run_isolated([&] { return repro_here(c, table, options); },
                      [&](double seconds) { return no_answer(seconds, timeout); },
                      [&](Verdict verdict, const std::string& reason) {
                        Record record = planned_record(c, table);
                        record.judgement.verdict = verdict;
                        record.judgement.reason = reason;
                        print_record(record);
                        return static_cast<int>(kCrash);
                      });
}

}  // namespace

Command add_repro(CLI::App& app) {
  auto options = std::make_shared<ReproOptions>();
  app.footer(
      "The line is what a failing case printed. Keys that it leaves out have their defaults:\n"
      "  form=chunked chunk=64 B=1 T=64 Hk=1 Hv=Hk dk=64 dv=dk contract=fp32 regime=normal state=none "
      "seed=0\n\n"
      "  samestate repro 'v1 gated_delta_rule chunk=16 T=65 Hk=2 Hv=4 dk=16 dv=8 contract=bf16 regime=slow "
      "seed=0x2a'");
  app.add_option("line", options->line, "the case line, quoted")->required();
  app.add_option("--kernel", options->kernel, "run this kernel instead of the one that the line names")
      ->check(named());
  app.add_option("--plugin", options->plugins, "load kernels from a shared library (repeatable)")
      ->check(named());
  app.add_flag("--shrink", options->shrink, "first make the case smaller, as long as it fails alike");
  app.add_option("--shrink-budget", options->shrink_budget, "time for that")->capture_default_str();
  app.add_option("--timeout", options->timeout, "a run that takes longer is a timeout (0: no limit)")
      ->capture_default_str();
  app.add_option("--dump", options->dump, "write all tensors of the run to a safetensors file")
      ->check(named());
  return [options] { return run_repro(*options); };
}

namespace {

/// The tensors that a run file of a case holds, a line each.
int print_tensors(const std::string& line) {
  const Case c = parse_case(line);
  check_names(c);
  std::vector<NamedShape> shapes = named_shapes(line);
  if (shapes.empty()) {
    Trace trace;
    trace.batch = batch_of(c);
    const BatchShape& s = trace.batch.shape;
    trace.outputs.o.resize(static_cast<std::size_t>(s.B * s.T * s.Hv * s.dv));
    trace.outputs.final_state.resize(static_cast<std::size_t>(s.sequences() * s.Hv * s.dk * s.dv));
    Record record;
    record.line = line;
    record.law = c.law;
    for (const auto& [name, tensor] : run_file_of(record, trace).tensors)
      shapes.push_back({name, tensor.shape});
  }
  for (const NamedShape& tensor : shapes)
    fmt::print("{:<24} [{}]\n", tensor.name, fmt::join(tensor.shape, ", "));
  return kPass;
}

}  // namespace

Command add_judge(CLI::App& app) {
  auto file = std::make_shared<std::string>();
  auto line = std::make_shared<std::string>();
  app.footer(
      "The file is a safetensors file as `samestate repro --dump` writes it: metadata "
      "format=samestate-run-1, case and kernel;\n"
      "tensors q k v o, and where the case has them g beta initial_state cu_seqlens final_state. A system of "
      "named tensors has\n"
      "them all as input.NAME and output.NAME, [B, ...] but for weights, and under form=decode metadata "
      "form, "
      "the form that was\n"
      "called. F32 or F64. System, form, chunk, sizes and contract are those of the case line; the data are "
      "the "
      "file's, whatever\n"
      "regime or seed the line names.\n\n"
      "  samestate judge run.safetensors\n"
      "  samestate judge --tensors 'v1 rms_norm form=fused T=8'      which tensors, of which shape");
  auto* path = app.add_option("file", *file, "the run file");
  auto* names = app.add_option("--tensors", *line, "print what a run file of this case line holds");
  names->excludes(path);
  return [file, line, names, path] {
    if (names->count() > 0) return print_tensors(*line);
    if (path->count() == 0) throw Error("judge: name a run file, or --tensors and a case line");
    const Record record = judge_run_file(read_run_file(*file, named_shapes));
    print_record(record);
    return exit_code_of(record.judgement.verdict);
  };
}

}  // namespace samestate::cli

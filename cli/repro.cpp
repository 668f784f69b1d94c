#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/table.h"
#include "fixtures/run_file.h"
#include "fuzz/exchange.h"
#include "oracles/contracts.h"
#include "reports/summary.h"

namespace samestate::cli {
namespace {

struct ReproOptions {
  std::string line, kernel, dump;
  std::vector<std::string> plugins;
};

void print_record(const Record& record) {
  const Judgement& j = record.judgement;
  fmt::print("case      {}\n", record.line);
  fmt::print("kernel    {} on {}\n", record.kernel, record.device);
  fmt::print("verdict   {}{}{}\n", name_of(j.verdict), j.reason.empty() ? "" : ": ", j.reason);
  if (j.verdict == Verdict::skipped || j.verdict == Verdict::unsupported || j.verdict == Verdict::crash)
    return;
  fmt::print("gate      {}\n", j.gate);
  fmt::print("ratio     {:.6g}   (error {:.6g} of a bound of {:.6g})\n", j.ratio, j.error, j.bound);
  fmt::print(
      "gates     row {:.4g}   head {:.4g}   state {:.4g}   hard {:.4g}   twin {:.4g}   median row {:.4g}\n",
      j.row_ratio, j.head_ratio, j.state_ratio, j.hard_ratio, j.twin_ratio, j.median_ratio);
  fmt::print("worst at  {}\n", place_of(j.worst));
  fmt::print("          expected {:.9g}, actual {:.9g}\n", j.expected, j.actual);
  fmt::print("rows      {} compared, relative RMS error of o {:.3g}\n", j.rows, j.relative_rms);
}

int run_repro(const ReproOptions& options) {
  const KernelTable table = kernel_table(options.plugins);
  Case c = parse_case(options.line);
  if (!options.kernel.empty()) c.kernel = options.kernel;
  Trace trace;
  const Record record = run_case(c, table, 1, options.dump.empty() ? nullptr : &trace);
  print_record(record);
  if (!options.dump.empty()) {
    write_run_file(options.dump, run_file_of(record, trace));
    fmt::print("tensors   {}\n", options.dump);
  }
  return exit_code_of(record.judgement.verdict);
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
  app.add_option("--kernel", options->kernel, "run this kernel instead of the one that the line names");
  app.add_option("--plugin", options->plugins, "load kernels from a shared library (repeatable)");
  app.add_option("--dump", options->dump, "write all tensors of the run to a safetensors file");
  return [options] { return run_repro(*options); };
}

Command add_judge(CLI::App& app) {
  auto file = std::make_shared<std::string>();
  app.footer(
      "The file is a safetensors file as `samestate repro --dump` writes it: metadata "
      "format=samestate-run-1, case and kernel;\n"
      "tensors q k v o, and where the case has them g beta initial_state cu_seqlens final_state. System, "
      "form, chunk and contract\n"
      "are those of the case line; the data are the file's, whatever regime or seed the line names.");
  app.add_option("file", *file, "the run file")->required();
  return [file] {
    const Record record = judge_run_file(read_run_file(*file));
    print_record(record);
    return exit_code_of(record.judgement.verdict);
  };
}

}  // namespace samestate::cli

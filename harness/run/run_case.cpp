#include "harness/run/run_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "fixtures/quote.h"
#include "harness/cases/regimes.h"
#include "harness/cases/systems.h"
#include "harness/run/device_fault.h"
#include "harness/run/judge_batch.h"
#include "harness/run/operator_run.h"
#include "oracles/contracts.h"

namespace samestate {
namespace {

/// The companion's name differs in the form alone.
std::string with_form(const Kernel& kernel, std::string_view form) {
  const std::size_t dot = kernel.name.rfind('.');
  return kernel.name.substr(0, dot == std::string::npos ? 0 : dot + 1) + std::string(form);
}

class CaseRun {
 public:
  CaseRun(const Case& c, const KernelTable& table, int threads, bool traced)
      : case_(c),
        system_(system_named(c.system)),
        contract_(contract_of(c)),
        pair_(table.pair_for(c)),
        options_{layout_named(c.layout), threads},
        traced_(traced),
        batch_(batch_of(c)) {
    require_finite(batch_);
  }

  [[nodiscard]] Judgement judge() {
    if (!case_.law.empty()) {
      const LawSubject subject{batch_,
                               *system_.family,
                               contract_,
                               case_.form == "recurrent" ? 0 : case_.chunk,
                               [this](const Batch& batch, const Path& path) { return run(batch, path); },
                               traced_ ? &law_ : nullptr};
      return judge_law(law_named(case_.law), subject);
    }
    outputs_ = run(batch_, path_of(case_, batch_.shape.T));
    return judge_batch(case_, batch_, outputs_,
                       [this](const Batch& batch, const Path& path) { return run(batch, path); });
  }

  [[nodiscard]] Trace take_trace() {
    return {std::move(batch_), std::move(outputs_), {}, {}, {}, std::move(law_)};
  }

 private:
  [[nodiscard]] Outputs run(const Batch& batch, const Path& path) const {
    return run_kernel(pair_, batch, path, contract_, options_);
  }

  const Case& case_;
  const System& system_;
  const Contract contract_;
  KernelPair pair_;
  RunOptions options_;
  bool traced_;
  Batch batch_;
  Outputs outputs_;
  LawTrace law_;
};

}  // namespace

namespace {

/// What rows of both tables must have.
template <class Row>
void check_row(const Row& row, const KernelTable& table) {
  // The name is a value of the case line.
  if (row.name.empty() ||
      !std::all_of(row.name.begin(), row.name.end(), [](char c) { return c > ' ' && c < 0x7f; })) {
    throw Error(
        fmt::format("kernel {}: a name is printable ASCII without spaces, as my.gated_delta_rule.chunked",
                    quote(row.name)));
  }
  if (row.device != "cpu" && row.device != "cuda") {
    throw Error(fmt::format("kernel {}: device {} must be cpu or cuda", row.name, quote(row.device)));
  }
  if (row.contracts.empty()) {
    throw Error("kernel " + row.name +
                ": its row promises no contract; `samestate list contracts` shows them");
  }
  if (row.run == nullptr) throw Error("kernel " + row.name + ": its row has no function");
  const auto same = [&](const auto& other) { return other.name == row.name; };
  if (std::any_of(table.rows().begin(), table.rows().end(), same) ||
      std::any_of(table.operator_rows().begin(), table.operator_rows().end(), same)) {
    throw Error("kernel " + row.name + ": the name is taken; rename the plugin's row");
  }
  for (const std::string& contract : row.contracts) (void)contract_named(contract);
}

}  // namespace

void KernelTable::add(std::span<const Kernel> rows) {
  for (const Kernel& row : rows) {
    check_row(row, *this);
    (void)system_named(row.system);
    if (row.form != "recurrent" && row.form != "chunked") {
      throw Error(fmt::format("kernel {}: form {} must be recurrent or chunked", row.name, row.form));
    }
    rows_.push_back(row);
  }
}

void KernelTable::add(std::span<const OperatorKernel> rows) {
  for (const OperatorKernel& row : rows) {
    check_row(row, *this);
    const Operator* op = find_operator(row.system);
    if (op == nullptr) (void)system_named(row.system);
    if (op == nullptr || op->form(row.form) == nullptr) {
      throw Error(fmt::format("kernel {}: {} has no form {}; `samestate list systems` shows them", row.name,
                              row.system, quote(row.form)));
    }
    operators_.push_back(row);
  }
}

const Kernel& KernelTable::named(std::string_view name) const {
  for (const Kernel& row : rows_) {
    if (row.name == name) return row;
  }
  throw Error(
      fmt::format("kernel={}: no such kernel of the recurrent family; `samestate list kernels` shows them, "
                  "and a plugin's needs "
                  "--plugin FILE",
                  name));
}

KernelPair KernelTable::pair_for(const Case& c) const {
  const bool recurrent =
      c.form == "recurrent" || (c.chunk == 0 && (c.form == "decode" || c.form == "packed"));
  const std::string name =
      c.kernel.empty() ? fmt::format("cpu.{}.{}", c.system, recurrent ? "recurrent" : "chunked") : c.kernel;
  const Kernel& kernel = named(name);
  if (kernel.system != c.system) {
    throw Error(fmt::format("kernel={} computes {}, not {}", name, kernel.system, c.system));
  }
  KernelPair pair;
  (kernel.form == "chunked" ? pair.chunked : pair.recurrent) = &kernel;
  const std::string companion = with_form(kernel, kernel.form == "chunked" ? "recurrent" : "chunked");
  for (const Kernel& row : rows_) {
    if (row.name == companion) (row.form == "chunked" ? pair.chunked : pair.recurrent) = &row;
  }
  return pair;
}

const OperatorKernel& KernelTable::operator_for(const Case& c) const {
  std::vector<std::string_view> known;
  for (const OperatorKernel& row : operators_) {
    if (row.system != c.system) continue;
    known.push_back(row.name);
    const bool fits = c.form == "decode" || row.form == c.form;
    if (c.kernel.empty() ? fits : row.name == c.kernel && fits) return row;
  }
  throw Error(fmt::format("{}: no such kernel of {} with form={}; known: {}",
                          c.kernel.empty() ? "kernel" : "kernel=" + c.kernel, c.system, c.form,
                          fmt::join(known, ", ")));
}

Batch batch_of(const Case& c, int threads) {
  check_names(c);
  const System& system = system_named(c.system);
  Draw draw;
  draw.shape = batch_shape_of(c);
  draw.regime = c.regime;
  draw.seed = c.seed;
  draw.gated = system.family->gated;
  draw.beta = system.family->delta;
  draw.contract = &contract_named(c.contract);
  draw.threads = threads;
  return generate(draw);
}

namespace {

Record record_of(const Case& c, std::string_view kernel, std::string_view device) {
  Record record;
  record.line = format_case(c);
  record.kernel = kernel;
  record.system = c.system;
  record.form = c.form;
  record.contract = c.contract;
  record.regime = c.regime;
  record.law = c.law;
  record.device = device;
  return record;
}

}  // namespace

void set_judgement(Record& record, const std::function<Judgement()>& judge) {
  const auto started = std::chrono::steady_clock::now();
  if (record.device == "cuda") {
    if (const std::string fault = device_fault(); !fault.empty()) {
      record.judgement.verdict = Verdict::skipped;
      record.judgement.reason = fault + ": an earlier case of this process broke its device context";
      return;
    }
  }
  try {
    record.judgement = judge();
  } catch (const Unavailable& unavailable) {
    record.judgement.verdict =
        unavailable.kind == Outcome::Kind::no_device ? Verdict::skipped : Verdict::unsupported;
    record.judgement.reason = unavailable.what();
  } catch (const Trespass& trespass) {
    record.judgement.verdict = Verdict::fail;
    record.judgement.gate = "memory";
    record.judgement.ratio = std::numeric_limits<double>::infinity();
    record.judgement.reason = trespass.what();
  } catch (const std::exception& thrown) {
    record.judgement.verdict = Verdict::crash;
    record.judgement.gate = "exception";
    record.judgement.reason = std::string("the kernel threw: ") + thrown.what();
  } catch (...) {
    record.judgement.verdict = Verdict::crash;
    record.judgement.gate = "exception";
    record.judgement.reason = "the kernel threw something that is no std::exception";
  }
  // A kernel that does not look at its own errors returns as if nothing had happened.
  if (record.device == "cuda" && record.judgement.verdict != Verdict::crash) {
    if (const std::string fault = device_fault(); !fault.empty()) {
      record.judgement = {};
      record.judgement.verdict = Verdict::crash;
      record.judgement.gate = "device";
      record.judgement.reason = fault + ": the kernel broke its device context, and every later call fails";
    }
  }
  record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
}

Record planned_record(const Case& c, const KernelTable& table) {
  check_names(c);
  if (is_operator_case(c)) {
    const OperatorKernel& kernel = table.operator_for(c);
    return record_of(c, kernel.name, kernel.device);
  }
  const KernelPair pair = table.pair_for(c);
  const bool recurrent = pair.chunked == nullptr || runs_recurrent_only(c);
  const Kernel& kernel = !c.kernel.empty() ? table.named(c.kernel)
                         : recurrent       ? *pair.recurrent
                                           : *pair.chunked;
  return record_of(c, kernel.name, kernel.device);
}

Record run_case(const Case& c, const KernelTable& table, int threads, Trace* trace) {
  Record record = planned_record(c, table);
  if (is_operator_case(c)) {
    const OperatorKernel& kernel = table.operator_for(c);
    OperatorRun kept;
    set_judgement(record, [&] { return judge_operator_case(c, kernel, threads, trace ? &kept : nullptr); });
    if (trace) *trace = {{}, {}, std::move(kept.inputs), std::move(kept.outputs), kernel.form, {}};
    return record;
  }
  CaseRun run(c, table, threads, trace != nullptr);
  set_judgement(record, [&] { return run.judge(); });
  if (trace) *trace = run.take_trace();
  return record;
}

}  // namespace samestate

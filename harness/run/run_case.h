#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "harness/cases/case_line.h"
#include "harness/cases/operator_case.h"
#include "harness/records/record.h"
#include "harness/run/runner.h"
#include "optimized/operator_kernel.h"
#include "oracles/laws/trace.h"

namespace samestate {

/// The kernels that a case runs on: the table of this build and, where given, rows of plugins.
class KernelTable {
 public:
  explicit KernelTable(std::span<const Kernel> rows, std::span<const OperatorKernel> operators = {})
      : rows_(rows.begin(), rows.end()), operators_(operators.begin(), operators.end()) {}
  [[nodiscard]] std::span<const Kernel> rows() const { return rows_; }
  [[nodiscard]] std::span<const OperatorKernel> operator_rows() const { return operators_; }
  /// Appends rows. Throws Error where a name is taken or could not stand in a case line, or a row has no
  /// function, no known device or system, or no contract that is known.
  void add(std::span<const Kernel> rows);
  void add(std::span<const OperatorKernel> rows);
  /// Throws Error that lists the names.
  [[nodiscard]] const Kernel& named(std::string_view name) const;
  /// The pair that runs `c`: its kernel, or the CPU kernel of its system where it names none, and the other
  /// form's kernel of the same system and device.
  [[nodiscard]] KernelPair pair_for(const Case& c) const;
  /// The kernel that runs a case of an operator: the one it names, or the first of its system and form (of
  /// its system under form=decode). Throws Error that lists those of the system.
  [[nodiscard]] const OperatorKernel& operator_for(const Case& c) const;

 private:
  std::vector<Kernel> rows_;
  std::vector<OperatorKernel> operators_;
};

/// The inputs of a case, made by `threads` threads. Throws Error (check_names).
[[nodiscard]] Batch batch_of(const Case& c, int threads = 1);

/// What a case left behind, for repro and --dump: the data and what the kernel returned.
struct Trace {
  Batch batch;
  Outputs outputs;
  /// Of an operator's case instead: inputs, outputs by sequence, and the form of the kernel that ran.
  std::vector<OperatorTensor> operator_inputs;
  std::vector<Tensors<double>> operator_outputs;
  std::string operator_form;
  LawTrace law;  ///< of a case with a law
};

/// What is known of a case's record before it runs: all but judgement and seconds. Throws Error for a case
/// that is no case.
[[nodiscard]] Record planned_record(const Case& c, const KernelTable& table);

/// Sets the judgement of `record` to what `judge` returns, or to the verdict of what it throws: unsupported,
/// skipped, fail (Trespass) or crash; `seconds` to how long it took. A kernel that breaks its device context
/// crashed, and later cases of the process are skipped: nothing can be judged there.
void set_judgement(Record& record, const std::function<Judgement()>& judge);

/// Runs one case on its kernel and judges it in the order of DESIGN 5: exact regimes bit for bit; else oracle
/// gates, then the twin for low-precision contracts, then segment by segment where the bound of the whole run
/// is vacuous (BOUNDS 10.1); with law=, the law instead. Throws Error for a case that is no case; whatever
/// the kernel does becomes a verdict.
[[nodiscard]] Record run_case(const Case& c, const KernelTable& table, int threads = 1,
                              Trace* trace = nullptr);

}  // namespace samestate

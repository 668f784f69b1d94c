#include "oracles/systems/judge_operator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "oracles/numbers.h"
#include "oracles/reasons.h"
#include "oracles/rounding.h"
#include "oracles/systems/input_format.h"
#include "oracles/systems/scalars.h"

namespace samestate {
namespace {

/// The rounding of an output to its format, for a value within `error` of x.
double output_rounding(double x, double error, Format format) {
  // already counted with the last operation
  if (format == Format::fp32 || format == Format::none) return 0.0;
  return half_ulp(std::abs(x) + error, format);
}

/// The format in which a kernel writes an output. Gradients of gates have the gates' format, which is fp32, those of a
/// recurrence's state the state's, and those of a weight the weight's.
Format output_format(const Operator& op, const Signature& signature, std::string_view name,
                     const Contract& contract) {
  const auto spec = std::ranges::find(signature.outputs, name, &TensorSpec::name);
  if (spec == signature.outputs.end()) return contract.output;
  if (op.family != nullptr && spec->axis == Axis::state) return contract.state;
  const bool of_gate = op.family != nullptr && is_of_gate(*spec);
  const bool of_fp32_weight = spec->axis == Axis::whole && input_format(*spec, contract) == Format::fp32;
  return of_gate || of_fp32_weight ? Format::fp32 : contract.output;
}

/// The sizes and errors of one output over all its elements.
struct Size {
  double expected = 0.0;   ///< sum of squares
  double tolerance = 0.0;  ///< over elements that have a tolerance
  double error = 0.0;
  std::int64_t judged = 0;
  std::int64_t open = 0;  ///< elements without a bound
};

}  // namespace

Location OperatorOracle::place(std::string_view output, Index row, Index column) const {
  const auto found = axes.find(output);
  return (found == axes.end() ? LastAxis() : found->second).place(row, column);
}

bool OperatorOracle::may_overflow(std::string_view output, Index row, Index column) const {
  const auto found = overflows.find(output);
  return found != overflows.end() && found->second(row, column);
}

bool OperatorOracle::row_may_overflow(std::string_view output, Index row) const {
  const auto found = overflows.find(output);
  return found != overflows.end() && found->second.row(row).any();
}

Format OperatorOracle::format(std::string_view output, Format usual) const {
  const auto found = formats.find(output);
  return found == formats.end() ? usual : found->second;
}

OperatorOracle operator_oracle(const Operator& op, const Call& call, const Tensors<double>& inputs,
                               const std::vector<Index>& cuts, const Contract& contract) {
  OperatorOracle oracle;
  Call canonical = call;
  canonical.form = op.forms.front().name;
  oracle.exact = op.exact(canonical, inputs);
  RunningModel model = RunningModel::of(contract);
  model.tiny *= op.late_factors;
  bool any_overflow = false;
  model.overflows = &any_overflow;
  model.rounds = &oracle.points;
  const RunningScope scope(model);
  const Tensors<Running> running = evaluate<Running>(op.running, op, call, inputs, cuts);
  oracle.points = oracle.points || model.stored_unit > 0.0;
  const Signature signature = op.signature(call);
  for (const auto& [name, x] : running) {
    const Format format = output_format(op, signature, name, contract);
    const Matrix<double>& exact = get(oracle.exact, name);
    if (exact.rows() != x.rows() || exact.cols() != x.cols()) {
      throw Error(fmt::format("{}: form {} returns {} as {} x {}, form {} as {} x {}", op.name, call.form,
                              name, x.rows(), x.cols(), canonical.form, exact.rows(), exact.cols()));
    }
    Matrix<double> tolerance(x.rows(), x.cols());
    Matrix<bool> undecided = Matrix<bool>::Constant(x.rows(), 1, false);
    Matrix<bool> overflows = Matrix<bool>::Constant(x.rows(), x.cols(), false);
    for (Index i = 0; i < x.rows(); ++i) {
      for (Index j = 0; j < x.cols(); ++j) {
        const double error = x(i, j).error();
        tolerance(i, j) = error + output_rounding(exact(i, j), error, format);
        // A value without a number in the format is not representable, whether it is known well or not at all
        // (an open choice of experts).
        const double size = std::abs(exact(i, j)) + (std::isfinite(error) ? error : 0.0);
        if (std::isfinite(exact(i, j)) && !std::isfinite(round_to(size, format))) {
          tolerance(i, j) = kInfinity;
          overflows(i, j) = true;
        }
        overflows(i, j) = overflows(i, j) || (any_overflow && std::isinf(error) && x(i, j).overflows());
        undecided(i, 0) = undecided(i, 0) || x(i, j).undecided();
      }
    }
    oracle.axes.emplace(name, last_axis(op, call, name));
    if (format != contract.output) oracle.formats.emplace(name, format);
    oracle.tolerance.emplace(name, std::move(tolerance));
    oracle.undecided.emplace(name, std::move(undecided));
    if (overflows.any()) oracle.overflows.emplace(name, std::move(overflows));
  }
  return oracle;
}

Judgement judge_operator(const Operator& op, const OperatorOracle& oracle, const Tensors<double>& actual) {
  Judgement judgement;
  judgement.gate = "element";
  judgement.ratio = -1.0;
  std::vector<double> ratios;
  std::int64_t open = 0;
  bool tight = false;
  std::string loose;
  double squares = 0.0;
  double errors = 0.0;
  std::string where;
  for (const auto& [name, exact] : oracle.exact) {
    const Matrix<double>& x = get(actual, name);
    const Matrix<double>& tolerance = get(oracle.tolerance, name);
    if (x.rows() != exact.rows() || x.cols() != exact.cols()) {
      throw Error(fmt::format("{}: output {} has {} x {} elements, expected {} x {}", op.name, name, x.rows(),
                              x.cols(), exact.rows(), exact.cols()));
    }
    judgement.rows += exact.rows();
    Size size;
    for (Index i = 0; i < exact.rows(); ++i) {
      for (Index j = 0; j < exact.cols(); ++j) {
        const double bound = tolerance(i, j);
        const double difference = std::abs(x(i, j) - exact(i, j));
        const double error = std::isnan(difference) ? kInfinity : difference;
        // An infinite bound does not excuse a NaN where a number is expected; a format without that number
        // does.
        if (!std::isfinite(bound) &&
            (std::isfinite(x(i, j)) || !std::isfinite(exact(i, j)) || oracle.may_overflow(name, i, j))) {
          ++open;
          ++size.open;
          continue;
        }
        const double ratio = error == 0.0 ? 0.0 : std::isinf(error) ? kInfinity : error / bound;
        size.expected += exact(i, j) * exact(i, j);
        if (std::isfinite(bound)) size.tolerance += bound * bound;
        size.error += error * error;
        ++size.judged;
        ratios.push_back(ratio);
        if (ratio > judgement.ratio) {
          judgement.ratio = ratio;
          judgement.error = error;
          judgement.bound = bound;
          judgement.worst = oracle.place(name, i, j);
          judgement.expected = exact(i, j);
          judgement.actual = x(i, j);
          where = name;
        }
      }
    }
    squares += size.expected;
    errors += size.error;
    const bool says = size.judged > size.open && size.expected > 0.0 &&
                      size.tolerance <= kVacuousOutput * kVacuousOutput * size.expected;
    tight = tight || says;
    if (!says && size.judged > 0 && size.expected > 0.0) loose += (loose.empty() ? "" : ", ") + name;
  }
  if (ratios.empty()) {
    judgement.ratio = 0.0;
    judgement.verdict = Verdict::vacuous;
    if (open == 0) judgement.gate = kZeroGate;
    judgement.reason =
        open > 0 ? fmt::format("none of {} elements has a finite bound", open) : "nothing was compared";
    return judgement;
  }
  std::nth_element(ratios.begin(), ratios.begin() + std::ssize(ratios) / 2, ratios.end());
  judgement.median_ratio = ratios[ratios.size() / 2];
  judgement.row_ratio = judgement.ratio;
  judgement.hard_ratio = judgement.ratio;
  judgement.relative_rms = squares > 0.0 ? std::sqrt(errors / squares) : std::sqrt(errors);
  if (judgement.ratio > 1.0) {
    judgement.verdict = Verdict::fail;
    judgement.reason = fmt::format("output {}", where);
  } else if (squares == 0.0) {
    judgement.verdict = Verdict::vacuous;
    judgement.gate = kZeroGate;
    judgement.reason = "everything expected is zero";
  } else if (!tight) {
    judgement.verdict = Verdict::vacuous;
    judgement.reason = fmt::format("the bound of every output is above {} of its size", kVacuousOutput);
  } else {
    judgement.verdict = Verdict::pass;
    if (open > 0) judgement.reason = fmt::format("{} element(s) left out: their bound is not finite", open);
    if (!loose.empty()) {
      judgement.reason += fmt::format("{}bound above {} of its size: {}",
                                      judgement.reason.empty() ? "" : "; ", kVacuousOutput, loose);
    }
  }
  return judgement;
}

}  // namespace samestate

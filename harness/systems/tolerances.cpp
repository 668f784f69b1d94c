#include "harness/systems/tolerances.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "harness/run/judge_batch.h"
#include "harness/systems/recurrent_system.h"
#include "harness/systems/tensor_system.h"
#include "oracles/judge.h"
#include "reference/error.h"

namespace samestate {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// What is known of a block beside its values.
struct Known {
  Matrix<double> exact, limit;
  double predicted_squares = kNaN;  ///< sum of squares of the predicted errors
  double row_limit = kInfinity;     ///< largest
  double worst_case = kInfinity;
  bool whole = false;  ///< a row's figure is that of the block: a state of the family
};

Known known_of_rows(const HeadOracle& oracle) {
  Known k;
  k.exact = oracle.exact.o;
  k.limit = Matrix<double>::Constant(k.exact.rows(), k.exact.cols(), kInfinity);
  if (oracle.vacuous) return k;
  k.limit = oracle.row.replicate(1, k.exact.cols());
  k.predicted_squares = oracle.rms.squaredNorm();
  k.row_limit = oracle.row.size() > 0 ? oracle.row.maxCoeff() : 0.0;
  k.worst_case = oracle.row_hard.size() > 0 ? oracle.row_hard.maxCoeff() : 0.0;
  return k;
}

Known known_of_state(const HeadOracle& oracle) {
  Known k;
  k.whole = true;
  k.exact = oracle.exact.state;
  k.limit =
      Matrix<double>::Constant(k.exact.rows(), k.exact.cols(), oracle.vacuous ? kInfinity : oracle.state);
  if (oracle.vacuous) return k;
  const double predicted = oracle.state / oracle.policy.state_factor;
  k.predicted_squares = predicted * predicted;
  k.row_limit = oracle.state;
  k.worst_case = oracle.state_hard;
  return k;
}

/// In the order of blocks_of.
std::vector<Known> known_of(const Resolved& r, std::string_view native,
                            const std::vector<CaseTensor>& inputs) {
  std::vector<Known> out;
  if (const auto* family = dynamic_cast<const RecurrentSystem*>(r.system)) {
    const Batch batch = family->batch(r, inputs);
    for (std::int64_t n = 0; n < batch.shape.sequences(); ++n) {
      for (std::int64_t h = 0; h < batch.shape.Hv; ++h) {
        const Sequence<double> x = sequence_of(batch, n, h);
        const HeadOracle oracle =
            oracle_of(x, r.path(x.tokens()), r.promised, family->family, batch.shape.l2norm);
        out.push_back(known_of_rows(oracle));
        out.push_back(known_of_state(oracle));
      }
    }
    return out;
  }
  const auto& system = dynamic_cast<const TensorSystem&>(*r.system);
  for (Index b = 0; b < r.c.B; ++b) {
    const OperatorOracle oracle = operator_oracle(system.row, system.call(r.c, native),
                                                  sequence_of(inputs, b), cuts_of(r), *r.contract);
    for (const TensorSpec& spec : system.row.signature(system.call(r.c, native)).outputs) {
      Known k;
      k.exact = get(oracle.exact, spec.name);
      k.limit = get(oracle.tolerance, spec.name);
      // An element without a bound stands apart: the others' are the limit.
      const Matrix<double> finite = k.limit.unaryExpr([](double x) { return std::isfinite(x) ? x : 0.0; });
      k.row_limit = finite.rows() > 0 ? finite.rowwise().norm().maxCoeff() : 0.0;
      k.worst_case = k.row_limit;
      out.push_back(std::move(k));
    }
  }
  return out;
}

struct Sums {
  OutputTolerance of;
  double exact = 0.0, error = 0.0, limit = 0.0, predicted = 0.0;
  Index elements = 0;
};

void add(Sums& sums, const OutputBlock& block, const Known& known) {
  const Matrix<double> error = (block.values - known.exact).cwiseAbs();
  const auto bounded = [](double x) { return std::isfinite(x) ? x : 0.0; };
  OutputTolerance& of = sums.of;
  if (error.size() == 0) return;
  sums.exact += known.exact.squaredNorm();
  sums.error += error.squaredNorm();
  sums.limit +=
      known.whole ? known.row_limit * known.row_limit : known.limit.unaryExpr(bounded).squaredNorm();
  sums.predicted += known.predicted_squares;
  sums.elements += error.size();
  of.largest = std::max(of.largest, known.exact.cwiseAbs().maxCoeff());
  of.measured.element = std::max(of.measured.element, error.maxCoeff());
  of.measured.row = std::max(of.measured.row, known.whole ? error.norm() : error.rowwise().norm().maxCoeff());
  of.limit.element = std::max(of.limit.element, known.whole || std::isinf(known.row_limit)
                                                    ? known.row_limit
                                                    : known.limit.unaryExpr(bounded).maxCoeff());
  of.limit.row = std::max(of.limit.row, known.row_limit);
  of.worst_case = std::max(of.worst_case, known.worst_case);
}

}  // namespace

std::vector<OutputBlock> blocks_of(const Resolved& r, std::string_view native,
                                   const std::vector<CaseTensor>& inputs,
                                   const std::vector<CaseTensor>& outputs) {
  std::vector<OutputBlock> out;
  if (outputs.empty()) return out;
  if (const auto* family = dynamic_cast<const RecurrentSystem*>(r.system)) {
    const Batch batch = family->batch(r, inputs);
    const Outputs written = outputs_of(outputs);
    for (std::int64_t n = 0; n < batch.shape.sequences(); ++n) {
      for (std::int64_t h = 0; h < batch.shape.Hv; ++h) {
        out.push_back({"o", Axis::tokens, rows_of(batch, written, n, h)});
        out.push_back({"final_state", Axis::state, state_of(batch, written, n, h)});
      }
    }
    return out;
  }
  const auto& system = dynamic_cast<const TensorSystem&>(*r.system);
  for (const Tensors<double>& one : by_sequence(outputs)) {
    for (const TensorSpec& spec : system.row.signature(system.call(r.c, native)).outputs)
      out.push_back({spec.name, spec.axis, get(one, spec.name)});
  }
  return out;
}

TolerancesOfCase tolerances_of(const Case& c, const KernelTable& table) {
  const Resolved r(c);
  if (r.law != nullptr) {
    throw Error(
        fmt::format("law={}: a law compares two runs; leave it out to ask for the errors of one", c.law));
  }
  TolerancesOfCase out;
  Trace trace;
  out.record = run_resolved(r, table.choose(r), 1, &trace);
  out.native = trace.native;
  out.actual = blocks_of(r, trace.native, trace.inputs, trace.outputs);
  if (out.actual.empty()) return out;
  std::vector<Known> known = known_of(r, trace.native, trace.inputs);
  std::map<std::string, Sums> by_output;
  std::vector<std::string> order;
  for (std::size_t i = 0; i < known.size(); ++i) {
    const OutputBlock& block = out.actual[i];
    const auto [at, added] = by_output.try_emplace(block.output);
    if (added) order.push_back(block.output);
    at->second.of.state = block.axis == Axis::state;
    add(at->second, block, known[i]);
    out.expected.push_back({block.output, block.axis, std::move(known[i].exact)});
    out.limits.push_back(std::move(known[i].limit));
  }
  for (const std::string& name : order) {
    Sums& sums = by_output.at(name);
    const double elements = static_cast<double>(std::max<Index>(sums.elements, 1));
    sums.of.output = name;
    sums.of.size = std::sqrt(sums.exact / elements);
    sums.of.measured.rms = std::sqrt(sums.error / elements);
    sums.of.limit.rms = std::sqrt(sums.limit / elements);
    sums.of.predicted = std::sqrt(sums.predicted / elements);
    out.outputs.push_back(sums.of);
  }
  out.inputs = std::move(trace.inputs);
  return out;
}

}  // namespace samestate

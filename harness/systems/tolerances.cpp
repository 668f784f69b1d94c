#include "harness/systems/tolerances.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "harness/systems/tensor_system.h"
#include "reference/error.h"

namespace samestate {

BlockPlace place_of(const Resolved& r, const TensorSpec& spec, const std::vector<std::int64_t>& shape,
                    std::int64_t sequence, std::int64_t head) {
  if (is_end_to_end(r)) {
    const std::int64_t size = std::reduce(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    return {0, spec.columns(), size / std::max<std::int64_t>(spec.columns(), 1)};
  }
  const std::vector<std::int64_t>& lengths = r.c.lengths;
  const bool state = spec.axis == Axis::state;
  const std::int64_t heads = head < 0 ? 1 : shape.at(state ? 1 : 2);
  const std::int64_t of_token = heads * spec.columns();
  std::int64_t rows = spec.rows() / heads, begin = sequence * spec.size() / of_token;
  if (!state && r.form->packed) {
    rows = lengths.at(static_cast<std::size_t>(sequence));
    begin = std::reduce(lengths.begin(), lengths.begin() + sequence, std::int64_t{0});
  }
  // In token tensors the heads of a row lie side by side; in states they follow each other.
  return {begin * of_token + std::max<std::int64_t>(head, 0) * spec.columns() * (state ? rows : 1),
          state ? spec.columns() : of_token, rows};
}

namespace {

struct Sums {
  OutputTolerance of;
  double exact = 0.0, error = 0.0, limit = 0.0, predicted = 0.0;
  Index elements = 0;
};

void add(Sums& sums, const Held& held) {
  const Matrix<double> error = (held.actual - held.exact).cwiseAbs();
  const auto bounded = [](double x) { return std::isfinite(x) ? x : 0.0; };
  OutputTolerance& of = sums.of;
  if (error.size() == 0) return;
  sums.exact += held.exact.squaredNorm();
  sums.error += error.squaredNorm();
  sums.limit += held.whole ? held.row_limit * held.row_limit : held.limit.unaryExpr(bounded).squaredNorm();
  sums.predicted += held.predicted;
  sums.elements += error.size();
  of.largest = std::max(of.largest, held.exact.cwiseAbs().maxCoeff());
  of.measured.element = std::max(of.measured.element, error.maxCoeff());
  of.measured.row = std::max(of.measured.row, held.whole ? error.norm() : error.rowwise().norm().maxCoeff());
  of.limit.element = std::max(of.limit.element, held.whole || std::isinf(held.row_limit)
                                                    ? held.row_limit
                                                    : held.limit.unaryExpr(bounded).maxCoeff());
  of.limit.row = std::max(of.limit.row, held.row_limit);
  of.worst_case = std::max(of.worst_case, held.worst_case);
}

/// Returns the block of a sequence and head from an output.
Matrix<double> cut_from(const Resolved& r, const CaseTensor& x, std::int64_t sequence, std::int64_t head) {
  const auto [first, stride, rows] = place_of(r, x.spec, x.shape, sequence, head);
  Matrix<double> out(rows, x.spec.columns());
  for (Index i = 0; i < out.rows(); ++i) {
    for (Index j = 0; j < out.cols(); ++j)
      out(i, j) = static_cast<double>(x.data[static_cast<std::size_t>(first + i * stride + j)]);
  }
  return out;
}

}  // namespace

std::vector<OutputBlock> blocks_of(const Resolved& r, const std::vector<CaseTensor>& outputs,
                                   const std::vector<OutputBlock>& like) {
  std::vector<OutputBlock> out;
  if (outputs.empty()) return out;
  for (const OutputBlock& block : like) {
    const auto x = std::find_if(outputs.begin(), outputs.end(),
                                [&](const CaseTensor& tensor) { return tensor.spec.name == block.output; });
    if (x == outputs.end()) throw Error(fmt::format("the run has no output {}", block.output));
    out.push_back(
        {block.output, block.axis, cut_from(r, *x, block.sequence, block.head), block.sequence, block.head});
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
  if (trace.outputs.empty()) return out;
  std::map<std::string, Sums> by_output;
  std::vector<std::string> order;
  for (Held& held : r.system->held(r, trace)) {
    const auto [at, added] = by_output.try_emplace(held.output);
    if (added) order.push_back(held.output);
    at->second.of.state = held.axis == Axis::state;
    add(at->second, held);
    const auto block = [&](Matrix<double>& values) {
      return OutputBlock{held.output, held.axis, std::move(values), held.sequence, held.head};
    };
    out.expected.push_back(block(held.exact));
    out.actual.push_back(block(held.actual));
    out.limits.push_back(std::move(held.limit));
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

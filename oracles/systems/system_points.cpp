#include "oracles/systems/system_points.h"

#include <algorithm>
#include <map>
#include <utility>

#include "oracles/contracts.h"
#include "oracles/named_points.h"
#include "oracles/systems/operator_twin.h"
#include "oracles/systems/scalars.h"

namespace samestate {
namespace {

constexpr Index kTokens = 6;
constexpr Index kChunk = 4;

/// Any numbers that the reference accepts, since points are reached whatever the data.
Matrix<double> values_of(const TensorSpec& spec) {
  double value = 0.5;
  if (spec.axis == Axis::state || spec.content == Content::slot) value = 0.0;
  if (spec.content == Content::mask) value = 1.0;
  if (spec.content == Content::log_decay) value = -0.5;
  Matrix<double> x = Matrix<double>::Constant(spec.rows(), spec.columns(), value);
  // The experts of a token differ.
  for (Index j = 0; spec.content == Content::slot && j < x.cols(); ++j)
    x.col(j).setConstant(static_cast<double>(j));
  return x;
}

/// The points that a contract rounds at only if its text names them: a system reaches them all the same.
const SkippedPoints& named_alone() {
  static const SkippedPoints all = [] {
    SkippedPoints out;
    for (const Point& point : named_points()) {
      if (point.row().only_if_named) out.add(point);
    }
    return out;
  }();
  return all;
}

/// Adds the points that one call reaches; a call whose sizes do not fit together reaches none.
void add_met(const Operator& op, const Call& call, SkippedPoints& met) {
  Tensors<double> inputs;
  try {
    for (const TensorSpec& spec : op.signature(call).inputs) inputs.emplace(spec.name, values_of(spec));
  } catch (const Error&) {
    return;
  }
  for (const char* contract : {"bf16", "tf32"}) {
    for (const bool last : {false, true}) {
      for (const Index tile : last ? std::vector<Index>{0, kChunk} : std::vector<Index>{0}) {
        SampledModel model = SampledModel::twin(contract_named(contract));
        model.softmax.divides_last = last;
        model.softmax.key_tile = tile;
        model.switched = &named_alone();
        const SamplingScope scope(model, &met);
        (void)evaluate(op.stored, op, call, inputs, {});
      }
    }
  }
}

std::vector<Point> all_met(const Operator& op) {
  SkippedPoints met;
  for (const OperatorForm& form : op.forms) {
    Call call;
    call.form = form.name;
    call.tokens = kTokens;
    call.chunk = kChunk;
    for (const Parameter& p : op.parameters) call.parameters.emplace(p.name, p.standard);
    add_met(op, call, met);
    // An optional part that the standard sizes do not have.
    for (const Parameter& p : op.parameters) {
      if (p.standard != 0) continue;
      Call with = call;
      with.parameters.find(p.name)->second = std::min<Index>(p.most, kChunk);
      add_met(op, with, met);
    }
  }
  met.sort();
  return met.points;
}

const std::vector<std::pair<std::string_view, std::vector<Point>>>& points_by_system() {
  static const auto all = [] {
    std::vector<std::pair<std::string_view, std::vector<Point>>> out;
    for (const Operator& op : operators()) out.emplace_back(op.name, all_met(op));
    return out;
  }();
  return all;
}

}  // namespace

std::vector<Point> points_of(const Operator& op) {
  const auto& all = points_by_system();
  const auto found = std::ranges::find(all, op.name, [](const auto& one) { return one.first; });
  return found != all.end() ? found->second : all_met(op);
}

std::vector<std::string_view> systems_of(Point point) {
  std::vector<std::string_view> out;
  for (const auto& [system, met] : points_by_system()) {
    if (std::ranges::find(met, point) != met.end()) out.push_back(system);
  }
  return out;
}

}  // namespace samestate

#include "oracles/systems/in_doubt.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "oracles/limits.h"
#include "oracles/numbers.h"

namespace samestate {
namespace {

constexpr double kUnit = 0x1p-24;

/// Numbers that stand for a place, a mask or a count, of which a little more is another one or none.
bool counts(Content content) {
  return content == Content::slot || content == Content::mask || content == Content::no_count;
}

Tensors<double> moved(const Signature& signature, Tensors<double> inputs, std::mt19937_64& engine) {
  for (const TensorSpec& spec : signature.inputs) {
    if (counts(spec.content)) continue;
    Matrix<double>& x = inputs.find(spec.name)->second;
    for (Index i = 0; i < x.size(); ++i)
      x.data()[i] *= 1.0 + kUnit * (static_cast<double>(engine() >> 11U) * 0x1p-52 - 1.0);
  }
  return inputs;
}

/// The rows whose error may be in doubt, of one output.
struct Rows {
  const Matrix<double>& exact;
  Matrix<double> error;
  std::vector<Index> rows;
  Vector<double> noise;  ///< sigma_r^2 of all rows
  Vector<double> alike;  ///< what the roundings of one long sum make of a row where all fall to one side

  [[nodiscard]] bool stands_out(Index r) const {
    const double size = std::max(std::sqrt(noise(r)), alike(r) / kDoubt);
    // So written, what is no number stands out, and a row whose moved values are none does not.
    return !(std::sqrt(error.row(r).cwiseAbs2().mean()) <= kDoubt * size &&
             error.row(r).cwiseAbs().maxCoeff() <= 4.0 * kDoubt * size) &&
           !std::isnan(noise(r));
  }
  void keep_those_that_stand_out() {
    std::erase_if(rows, [&](Index r) { return !stands_out(r); });
  }
};

}  // namespace

bool in_doubt(const TwinSubject& of, const Tensors<double>& actual, std::uint64_t seed) {
  const auto tokens = static_cast<double>(tokens_met(of));
  std::map<std::string, Rows> outputs;
  for (const auto& [name, exact] : of.oracle.exact) {
    if (exact.size() == 0) continue;
    const Matrix<double>& tolerance = get(of.oracle.tolerance, name);
    const Matrix<bool>& undecided = get(of.oracle.undecided, name);
    const Vector<double> squares = exact.cwiseAbs2().rowwise().mean();
    Rows rows{
        exact, get(actual, name) - exact, {}, kUnit * kUnit * squares, kUnit * tokens * squares.cwiseSqrt()};
    for (Index r = 0; r < exact.rows(); ++r) {
      const bool room =
          !(tolerance.row(r).cwiseAbs2().mean() <= kRoomOfWorstCase * kRoomOfWorstCase * squares(r));
      if (room && !undecided(r, 0)) rows.rows.push_back(r);
    }
    rows.keep_those_that_stand_out();
    if (!rows.rows.empty()) outputs.emplace(name, std::move(rows));
  }
  if (outputs.empty()) return false;
  Call canonical = of.call;
  canonical.form = of.op.forms.front().name;
  const Signature signature = of.op.signature(canonical);
  std::mt19937_64 engine(seed);
  for (int m = 0; m < kMovedInputs; ++m) {
    const Tensors<double> values = of.op.exact(canonical, moved(signature, of.inputs, engine));
    for (auto& [name, rows] : outputs)
      rows.noise += (get(values, name) - rows.exact).cwiseAbs2().rowwise().mean() / kMovedInputs;
  }
  for (auto& [name, rows] : outputs) {
    rows.keep_those_that_stand_out();
    if (!rows.rows.empty()) return true;
  }
  return false;
}

Index tokens_met(const TwinSubject& of) {
  Index before = 0;
  for (const TensorSpec& spec : of.op.signature(of.call).inputs) {
    if (spec.axis == Axis::prefix) before = std::max(before, get(of.inputs, spec.name).rows());
  }
  return std::max(before, of.call.tokens);
}

bool roundings_repeat(const TwinSubject& of) {
  for (const TensorSpec& spec : of.op.signature(of.call).inputs) {
    const Matrix<double>& x = get(of.inputs, spec.name);
    // A token that is masked is zero from there on.
    if (spec.content == Content::mask && (x.array() == 0.0).count() > kAlikeTokens) return true;
    if ((spec.axis != Axis::tokens && spec.axis != Axis::prefix) || counts(spec.content)) continue;
    std::map<std::vector<double>, int> times;
    for (Index t = 0; t < x.rows(); ++t) {
      const std::vector<double> token(x.row(t).begin(), x.row(t).end());
      if (++times[token] > kAlikeTokens) return true;
    }
  }
  return false;
}

}  // namespace samestate

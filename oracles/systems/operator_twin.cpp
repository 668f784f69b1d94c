#include "oracles/systems/operator_twin.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "oracles/numbers.h"
#include "oracles/systems/scalars.h"

namespace samestate {
namespace {

// DEV
inline constexpr double kTwinSame = 0.02;
inline constexpr double kTwinRow = 0.25;
inline constexpr double kTwinElement = 3.0;
inline constexpr double kTwinOwnError = 6.1e-5;

/// x as the kernel wrote it: in the output's format, or in fp32 where that is nearer (states).
Matrix<double> written(const Matrix<double>& x, const Matrix<double>& kernel, Format format) {
  const Matrix<double> rounded = x.unaryExpr([format](double e) { return round_to(e, format); });
  const Matrix<double> kept = x.unaryExpr([](double e) { return round_to(e, Format::fp32); });
  return (kernel - kept).squaredNorm() < (kernel - rounded).squaredNorm() ? kept : rounded;
}

/// What is known of all outputs.
struct Likeness {
  bool same = true;
  Index rows = 0;     ///< that are the twin's
  Index others = 0;   ///< of undecided tokens, that are not
  double mean = 0.0;  ///< of rho, of the output where it is largest
};

/// One output x against the twin t, both as they are written.
void compare(const Matrix<double>& x, const Matrix<double>& t, const Matrix<double>& y,
             const Matrix<bool>& undecided, Likeness& all) {
  const Vector<double> rho = unshared(x, t, y);
  double sum = 0.0;
  double counted = 0.0;
  for (Index r = 0; r < y.rows(); ++r) {
    const double errors = (t.row(r) - y.row(r)).norm() + kTwinOwnError * y.row(r).norm();
    const double sigma = errors / std::sqrt(static_cast<double>(y.cols()));
    const bool near =
        (x.row(r).array() == t.row(r).array()).all() ||
        (rho(r) <= kTwinRow && (x.row(r) - t.row(r)).cwiseAbs().maxCoeff() <= kTwinElement * sigma);
    if (near) ++all.rows;
    if (!near && undecided(r, 0)) ++all.others;
    if (undecided(r, 0)) continue;
    all.same = all.same && near;
    if (rho(r) < 0.0) continue;
    sum += rho(r);
    counted += 1.0;
  }
  if (counted > 0.0) all.mean = std::max(all.mean, sum / counted);
}

}  // namespace

Tensors<double> twin_values(const TwinSubject& of) {
  const SamplingScope scope(SampledModel::twin(of.contract));
  Tensors<double> out;
  for (const auto& [name, x] : evaluate(of.op.stored, of.op, of.call, of.inputs, of.cuts))
    out.emplace(name, x.unaryExpr([](const Stored& e) { return e.value(); }));
  return out;
}

Vector<double> unshared(const Matrix<double>& kernel, const Matrix<double>& twin,
                        const Matrix<double>& exact) {
  Vector<double> rho(exact.rows());
  for (Index r = 0; r < exact.rows(); ++r) {
    const double floor = kTwinOwnError * kTwinOwnError * exact.row(r).squaredNorm();
    const double of_kernel = (kernel.row(r) - exact.row(r)).squaredNorm();
    const double of_twin = (twin.row(r) - exact.row(r)).squaredNorm();
    const double apart = (kernel.row(r) - twin.row(r)).squaredNorm();
    if (!std::isfinite(of_kernel + of_twin)) {
      rho(r) = (kernel.row(r).array() == twin.row(r).array()).all() ? -1.0 : kInfinity;
    } else {
      rho(r) = std::max(of_kernel, of_twin) > floor ? apart / (of_kernel + of_twin) : -1.0;
    }
  }
  return rho;
}

Judgement judge_operator_twin(const TwinSubject& of, const Tensors<double>& actual) {
  Likeness all;
  bool zero = true;
  for (const auto& [name, t] : twin_values(of)) {
    if (t.size() == 0) continue;
    const Matrix<double>& x = get(actual, name);
    const Matrix<double>& y = get(of.oracle.exact, name);
    compare(x, written(t, x, of.contract.output), y, get(of.oracle.undecided, name), all);
    zero = zero && (y.array() == 0.0).all();
  }
  Judgement j;
  j.gate = "twin";
  j.error = all.mean;
  j.bound = kTwinSame;
  if (all.same && all.mean <= kTwinSame && all.rows > 0 && !zero) {
    j.verdict = Verdict::pass;
    j.ratio = j.twin_ratio = all.mean / kTwinSame;
    if (all.others > 0)
      j.reason = fmt::format("{} row(s) left out: of tokens whose choice is undecided", all.others);
  } else {
    j.verdict = Verdict::vacuous;
    j.reason = zero ? "everything expected is zero" : "another kernel than the twin";
  }
  return j;
}

}  // namespace samestate

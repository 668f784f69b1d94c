#include "oracles/systems/twin_shares.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "oracles/directions.h"
#include "oracles/numbers.h"
#include "oracles/systems/scalars.h"

namespace samestate {
namespace {

const TensorSpec* spec_of(const std::vector<TensorSpec>& specs, const std::string& name) {
  const auto spec = std::ranges::find(specs, name, &TensorSpec::name);
  return spec == specs.end() ? nullptr : &*spec;
}

/// For each of `rows` rows of an output, the first row that belongs to the same part of an equal token; the
/// row itself if the output has no tokens.
std::vector<Index> first_alike(const TwinSubject& of, const std::string& name, Index rows) {
  std::vector<Index> first(static_cast<std::size_t>(rows));
  for (Index r = 0; r < rows; ++r) first[static_cast<std::size_t>(r)] = r;
  const Signature signature = of.op.signature(of.call);
  const TensorSpec* const output = spec_of(signature.outputs, name);
  if (output == nullptr || output->axis != Axis::tokens || output->shape.empty()) return first;
  const Index tokens = output->shape.front();
  if (tokens == 0 || rows % tokens != 0) return first;
  std::map<std::vector<double>, Index> known;
  for (Index t = 0; t < tokens; ++t) {
    std::vector<double> token;
    for (const TensorSpec& spec : signature.inputs) {
      if (spec.axis != Axis::tokens) continue;
      const Matrix<double>& x = get(of.inputs, spec.name);
      if (x.rows() % tokens != 0) return first;
      const auto part = x.middleRows(t * (x.rows() / tokens), x.rows() / tokens).reshaped();
      token.insert(token.end(), part.begin(), part.end());
    }
    if (token.empty()) return first;
    const Index alike = known.try_emplace(std::move(token), t).first->second, of_token = rows / tokens;
    for (Index r = 0; r < of_token; ++r)
      first[static_cast<std::size_t>(t * of_token + r)] = alike * of_token + r;
  }
  return first;
}

}  // namespace

Matrix<double> written(const Matrix<double>& x, const Matrix<double>& kernel, Format format) {
  const bool narrow = std::all_of(kernel.data(), kernel.data() + kernel.size(), [format](double e) {
    return !std::isfinite(e) || round_to(e, format) == e;
  });
  return x.unaryExpr([as = narrow ? format : Format::fp32](double e) { return round_to(e, as); });
}

Matrix<double> written_beside(const Matrix<double>& twin, const Matrix<double>& kernel, Format format) {
  Matrix<double> out = written(twin, kernel, format);
  for (Index i = 0; i < out.size(); ++i) {
    const double t = twin.data()[i], x = kernel.data()[i];
    if (x == out.data()[i] || round_to(x, format) != x) continue;
    if (x == round_to(t * (1.0 + kTieOfFp32), format) || x == round_to(t * (1.0 - kTieOfFp32), format))
      out.data()[i] = x;
  }
  return out;
}

double least_normal(Format format) {
  const double unit = unit_roundoff(format);
  return unit > 0.0 ? subnormal_error(format) / unit : 0.0;
}

Share share_of(const TwinSubject& of, const std::string& name, const Matrix<double>& x,
               const Matrix<double>& t) {
  const Matrix<double>& y = get(of.oracle.exact, name);
  const Matrix<bool>& undecided = get(of.oracle.undecided, name);
  const Format format = of.oracle.format(name, of.contract.output);
  const Matrix<double> w = written(t, x, format);
  const Vector<double> rho = unshared(x, written_beside(t, x, format), y);
  Share share;
  const std::vector<Index> first = first_alike(of, name, x.rows());
  std::map<std::vector<double>, Vector<double>> equal;  // the sum of rho, and the number of rows
  for (Index r = 0; r < rho.size() && w.cols() > 0; ++r) {
    if (w.row(r).cwiseAbs().maxCoeff() < least_normal(format)) continue;
    if (rho(r) < 0.0 || undecided(r, 0) || of.oracle.row_may_overflow(name, r)) continue;
    if (rho(r) > share.most || share.worst < 0) share.worst = r;
    share.most = std::max(share.most, rho(r));
    const auto row = w.row(first[static_cast<std::size_t>(r)]);
    const auto [group, fresh] = equal.try_emplace({row.begin(), row.end()}, Vector<double>::Zero(2));
    group->second += Vector<double>{{rho(r), 1.0}};
    if (!fresh) continue;
    const Vector<double> carried = (x.row(r) - y.row(r)).cwiseAbs2() + (w.row(r) - y.row(r)).cwiseAbs2();
    share.elements += carried.sum() * carried.sum() / carried.squaredNorm();
  }
  for (const auto& [row, sum] : equal) share.mean += sum(0) / sum(1);
  share.rows = std::ssize(equal);
  if (share.rows > 0) share.mean /= static_cast<double>(share.rows);
  return share;
}

double directions_of(const TwinSubject& of, const std::string& name, const Matrix<double>& t) {
  const Signature signature = of.op.signature(of.call);
  const TensorSpec* const spec = spec_of(signature.outputs, name);
  if (spec == nullptr || spec->axis != Axis::state || spec->shape.size() < 2) return kInfinity;
  const Index height = spec->shape[spec->shape.size() - 2];
  const Matrix<double>& y = get(of.oracle.exact, name);
  Directions directions;
  for (Index first = 0; first + height <= t.rows(); first += height) {
    Matrix<double> e = t.middleRows(first, height) - y.middleRows(first, height);
    for (Index i = 0; i < height; ++i) {
      const double size = e.row(i).norm();
      if (size > 0.0 && std::isfinite(size))
        e.row(i) /= size;
      else
        e.row(i).setZero();
    }
    directions.add(e);
  }
  return directions.count();
}

Vector<double> unshared(const Matrix<double>& kernel, const Matrix<double>& twin,
                        const Matrix<double>& exact) {
  Vector<double> rho(exact.rows());
  for (Index r = 0; r < exact.rows(); ++r) {
    const double floor = kErrorsOfFp32 * kErrorsOfFp32 * exact.row(r).squaredNorm() + 1e-72;
    const double errors =
        (kernel.row(r) - exact.row(r)).squaredNorm() + (twin.row(r) - exact.row(r)).squaredNorm();
    const double apart = (kernel.row(r) - twin.row(r)).squaredNorm();
    const bool known = twin.row(r).allFinite() && exact.row(r).allFinite();
    rho(r) = !known || errors <= floor ? -1.0 : std::isfinite(errors) ? apart / errors : kInfinity;
  }
  return rho;
}

}  // namespace samestate

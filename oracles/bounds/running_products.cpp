#include "oracles/bounds/running_products.h"

#include <cmath>
#include <limits>
#include <vector>

#include "oracles/bounds/bound.h"
#include "oracles/bounds/term_by_term.h"

namespace samestate {
namespace {

/// Below this many multiplications, splitting the factors does not pay.
constexpr Index kFewProducts = 200;

/// A factor split into matrices of doubles.
struct Parts {
  Matrix<double> value, size, error;
  double least = std::numeric_limits<double>::infinity();  ///< smallest size + error of nonzero elements
  bool exact = true;                                       ///< there are no errors
  bool finite = true, ones = false, zeros = false, pending = false;

  explicit Parts(const RunningMatrix& x)
      : value(x.rows, x.columns), size(x.rows, x.columns), error(x.rows, x.columns) {
    for (Index i = 0; i < x.rows; ++i) {
      for (Index j = 0; j < x.columns; ++j) {
        const Running& from = x(i, j);
        const double e = from.error();
        value(i, j) = from.value();
        size(i, j) = std::abs(from.value());
        error(i, j) = e;
        const double most = size(i, j) + e;
        finite = finite && std::isfinite(most);
        exact = exact && e == 0.0;
        ones = ones || from.is_one();
        pending = pending || from.is_pending();
        if (most == 0.0) {
          zeros = true;
        } else {
          least = std::min(least, most);
        }
      }
    }
  }
  [[nodiscard]] Matrix<double> largest() const { return size + error; }
  [[nodiscard]] Matrix<double> terms() const {
    return (size + error).unaryExpr([](double most) { return most == 0.0 ? 0.0 : 1.0; });
  }
  /// size + error of the elements whose multiplication rounds: a factor of one does not.
  [[nodiscard]] Matrix<double> rounded(const RunningMatrix& x) const {
    Matrix<double> out = size + error;
    for (Index i = 0; ones && i < x.rows; ++i) {
      for (Index j = 0; j < x.columns; ++j) {
        if (x(i, j).is_one()) out(i, j) = 0.0;
      }
    }
    return out;
  }
};

}  // namespace

void add_product(const RunningMatrix& x, const RunningMatrix& y, Running* result, Index row_stride,
                 Index column_stride) {
  if (x.rows * x.columns * y.columns < kFewProducts)
    return add_term_by_term(x, y, result, row_stride, column_stride);
  const RunningModel& model = detail::running_model();
  const Parts a(x), b(y);
  const bool flushed = a.least * b.least < 2.0 * model.tiny;
  if (!a.finite || !b.finite || flushed || (a.ones && b.pending) || (b.ones && a.pending))
    return add_term_by_term(x, y, result, row_stride, column_stride);
  Matrix<double> values = a.value * b.value;
  Matrix<double> sizes = a.size * b.size;
  Matrix<double> errors = Matrix<double>::Zero(x.rows, y.columns);
  if (!b.exact) errors.noalias() += a.size * b.error;
  if (!a.exact) errors.noalias() += a.error * b.largest();
  if (a.ones || b.ones) {
    errors.noalias() += model.unit * (a.rounded(x) * b.rounded(y)).eval();
  } else {
    errors += (model.unit * (sizes + errors)).eval();
  }
  Matrix<double> terms;
  if (a.zeros || b.zeros) terms = a.terms() * b.terms();
  for (Index i = 0; i < x.rows; ++i) {
    for (Index j = 0; j < y.columns; ++j) {
      const double count = terms.size() > 0 ? terms(i, j) : static_cast<double>(x.columns);
      result[i * row_stride + j * column_stride] +=
          Running::sum_of(count, values(i, j), errors(i, j), sizes(i, j) + errors(i, j));
    }
  }
}

}  // namespace samestate

#include "oracles/bounds/stochastic_products.h"

#include "oracles/bounds/term_by_term.h"

namespace samestate {
namespace {

/// A factor whose sums have been drawn once each.
struct Drawn {
  Matrix<double> value;
  bool ones = false;
  bool pending_or_zero = false;  ///< a factor of one passes these on unchanged

  explicit Drawn(const StochasticMatrix& x) : value(x.rows, x.columns) {
    for (Index i = 0; i < x.rows; ++i) {
      for (Index j = 0; j < x.columns; ++j) {
        const Stochastic& from = x(i, j);
        value(i, j) = from.value();
        ones = ones || from.is_one();
        pending_or_zero = pending_or_zero || from.is_pending() || value(i, j) == 0.0;
      }
    }
  }
};

/// Term by term, with factors drawn once each: a factor of one passes the other on unchanged, pending or not.
void add_with_ones(const StochasticMatrix& x, const StochasticMatrix& y, const Drawn& a, const Drawn& b,
                   Stochastic* result, Index row_stride, Index column_stride) {
  for (Index i = 0; i < x.rows; ++i) {
    for (Index j = 0; j < y.columns; ++j) {
      Stochastic sum;
      for (Index l = 0; l < x.columns; ++l) {
        const Stochastic& left = x(i, l);
        const Stochastic& right = y(l, j);
        if (left.is_one()) {
          sum += right;
        } else if (right.is_one()) {
          sum += left;
        } else {
          sum += Stochastic::rounded(a.value(i, l) * b.value(l, j), 1.0);
        }
      }
      result[i * row_stride + j * column_stride] += sum;
    }
  }
}

}  // namespace

void add_product(const StochasticMatrix& x, const StochasticMatrix& y, Stochastic* result, Index row_stride,
                 Index column_stride) {
  if (detail::sampling().model.planted == Planted::partial)
    return add_term_by_term(x, y, result, row_stride, column_stride);
  const Drawn a(x), b(y);
  if ((a.ones && b.pending_or_zero) || (b.ones && a.pending_or_zero))
    return add_with_ones(x, y, a, b, result, row_stride, column_stride);
  const Matrix<double> values = a.value * b.value;
  const Matrix<double> squares = a.value.cwiseAbs2() * b.value.cwiseAbs2();
  const auto terms = static_cast<double>(x.columns);
  const auto lie_on = [&](double grid, Index i, Index j) {
    for (Index l = 0; l < x.columns; ++l) {
      if (!Stochastic::whole(a.value(i, l) * b.value(l, j) / grid)) return false;
    }
    return true;
  };
  for (Index i = 0; i < x.rows; ++i) {
    for (Index j = 0; j < y.columns; ++j) {
      Stochastic sum = Stochastic::sum_of(terms, values(i, j), squares(i, j));
      if (x.columns > 1 && squares(i, j) > 0.0) {
        const double grid = sum.grid();
        if (sum.seems_exact(grid) && !lie_on(grid, i, j)) sum = sum.off_grid(grid);
      }
      result[i * row_stride + j * column_stride] += sum;
    }
  }
}

}  // namespace samestate

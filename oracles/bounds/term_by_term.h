#pragma once

#include "oracles/bounds/eigen_products.h"

namespace samestate {

/// result(i, j) += sum_l x(i, l) y(l, j), by the operators of the scalar.
template <class Scalar>
void add_term_by_term(const StridedMatrix<Scalar>& x, const StridedMatrix<Scalar>& y, Scalar* result,
                      Eigen::Index row_stride, Eigen::Index column_stride) {
  for (Eigen::Index i = 0; i < x.rows; ++i) {
    for (Eigen::Index j = 0; j < y.columns; ++j) {
      Scalar sum;
      for (Eigen::Index l = 0; l < x.columns; ++l) sum += x(i, l) * y(l, j);
      result[i * row_stride + j * column_stride] += sum;
    }
  }
}

}  // namespace samestate

#pragma once

#include "reference/sequence.h"

namespace samestate {

/// The effective number of directions among the rows of matrices, (sum s^2)^2 / sum s^4 over all their
/// singular values: 1 for one outer product, the number of rows or columns for rows that have nothing in
/// common, and 0 for zeros.
class Directions {
 public:
  void add(const Matrix<double>& e) {
    const Matrix<double> gram = e.rows() < e.cols() ? (e * e.transpose()).eval() : (e.transpose() * e).eval();
    sum_ += gram.trace();
    squares_ += gram.squaredNorm();
  }
  [[nodiscard]] double count() const { return squares_ > 0.0 ? sum_ * sum_ / squares_ : 0.0; }

 private:
  double sum_ = 0.0;
  double squares_ = 0.0;
};

}  // namespace samestate

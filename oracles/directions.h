#pragma once

#include "reference/sequence.h"

namespace samestate {

/// Directions that the rows of matrices share out among, (sum s^2)^2 / sum s^4 over all their singular values: of one outer
/// product 1, of rows that have nothing in common as many as rows or columns. 0 of zeros.
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

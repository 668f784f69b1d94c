#pragma once

#include <initializer_list>

#include "reference/sequence.h"

namespace samestate::test {

/// [values, 1].
[[nodiscard]] inline Matrix<double> column(std::initializer_list<double> values) {
  Matrix<double> x(static_cast<Index>(values.size()), 1);
  Index i = 0;
  for (double value : values) x(i++, 0) = value;
  return x;
}

}  // namespace samestate::test

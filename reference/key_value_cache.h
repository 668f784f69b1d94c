#pragma once

#include <string>

#include "reference/error.h"
#include "reference/sequence.h"

namespace samestate {

/// Keys and values of all tokens so far.
template <class Scalar>
struct KeyValueCache {
  Matrix<Scalar> k;  ///< [S, key_heads * d]; 0 x 0 before the first token
  Matrix<Scalar> v;  ///< [S, key_heads * dv]

  [[nodiscard]] Index tokens() const { return k.rows(); }

  /// The cache with the rows of later tokens appended. Throws Error if the widths or the numbers of rows
  /// disagree.
  [[nodiscard]] KeyValueCache appended(const Matrix<Scalar>& keys, const Matrix<Scalar>& values) const {
    const bool first = tokens() == 0;
    if (keys.rows() != values.rows() || k.rows() != v.rows() ||
        (!first && (keys.cols() != k.cols() || values.cols() != v.cols()))) {
      throw Error("key-value cache of " + std::to_string(k.rows()) + " x " + std::to_string(k.cols()) +
                  " keys and " + std::to_string(v.rows()) + " x " + std::to_string(v.cols()) +
                  " values: cannot append " + std::to_string(keys.rows()) + " x " +
                  std::to_string(keys.cols()) + " and " + std::to_string(values.rows()) + " x " +
                  std::to_string(values.cols()));
    }
    if (first) return {keys, values};
    KeyValueCache out{Matrix<Scalar>(k.rows() + keys.rows(), k.cols()),
                      Matrix<Scalar>(v.rows() + values.rows(), v.cols())};
    out.k << k, keys;
    out.v << v, values;
    return out;
  }
};

}  // namespace samestate

#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "reference/error.h"
#include "reference/sequence.h"

/// Rotary position embedding (CFG-10, EQUATIONS 5.7 and 5.9): pair i of a head is rotated by the angle p
/// theta^(-2i/width) at position p. The score of a query with a key then depends only on their distance.
namespace samestate {

/// Which columns make a pair. The results differ, and a checkpoint works with one of them only.
enum class RotaryPairs {
  halves,      ///< (i, i + width/2): "rotate half", Qwen3-Next
  interleaved  ///< (2i, 2i + 1): DeepSeek's latent attention
};

/// Cosine and sine of every pair's angle.
template <class Scalar>
struct RotaryTables {
  Matrix<Scalar> cos;  ///< [T, width / 2]; public code repeats it to [T, width]
  Matrix<Scalar> sin;  ///< [T, width / 2]

  [[nodiscard]] Index width() const { return 2 * cos.cols(); }
};

/// Tables of the given positions, one row each. `width` counts the rotated columns of a head, and 0 rotates
/// none. Throws Error for an odd or negative width, or theta <= 0.
template <class Scalar>
[[nodiscard]] RotaryTables<Scalar> rotary_tables(const std::vector<Index>& positions, Index width,
                                                 const Scalar& theta) {
  using std::cos;
  using std::exp;
  using std::log;
  using std::sin;
  if (width < 0 || width % 2 != 0) {
    throw Error("rotary width " + std::to_string(width) +
                ": columns turn in pairs; give an even number >= 0");
  }
  if (!(Scalar(0) < theta)) throw Error("rotary theta must be above 0 (Qwen3-Next: 1e7)");
  const Scalar log_theta = log(theta);
  const Index T = static_cast<Index>(positions.size());
  RotaryTables<Scalar> tables{Matrix<Scalar>(T, width / 2), Matrix<Scalar>(T, width / 2)};
  for (Index i = 0; i < width / 2; ++i) {
    const Scalar exponent = Scalar(static_cast<double>(2 * i)) / Scalar(static_cast<double>(width));
    const Scalar frequency = exp(Scalar(-(exponent * log_theta)));
    for (Index t = 0; t < T; ++t) {
      const Scalar position(static_cast<double>(positions[static_cast<std::size_t>(t)]));
      const Scalar angle = position * frequency;
      tables.cos(t, i) = cos(angle);
      tables.sin(t, i) = sin(angle);
    }
  }
  return tables;
}

/// Tables of `tokens` consecutive positions from `first` on.
template <class Scalar>
[[nodiscard]] RotaryTables<Scalar> rotary_tables(Index first, Index tokens, Index width,
                                                 const Scalar& theta) {
  std::vector<Index> positions;
  for (Index t = 0; t < tokens; ++t) positions.push_back(first + t);
  return rotary_tables(positions, width, theta);
}

/// Rotates the first `tables.width()` columns of each head of x and leaves the others unchanged (partial
/// rotation):
///   (a, b) -> (a cos - b sin, b cos + a sin).
/// x: [T, heads * d], heads side by side. Throws Error if the tables have other rows than x or are wider than
/// a head, or if the heads do not divide the columns.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> rotate(const Matrix<Scalar>& x, const RotaryTables<Scalar>& tables,
                                    RotaryPairs pairs = RotaryPairs::halves, Index heads = 1) {
  if (heads < 1 || x.cols() % heads != 0) {
    throw Error("rotate: " + std::to_string(x.cols()) + " columns are no whole number of " +
                std::to_string(heads) + " heads");
  }
  const Index d = x.cols() / heads;
  const Index n = tables.cos.cols();
  if (tables.width() > d) {
    throw Error("rotary width " + std::to_string(tables.width()) + " is above the head width " +
                std::to_string(d));
  }
  if (tables.cos.rows() != x.rows() || tables.sin.rows() != x.rows() || tables.sin.cols() != n) {
    throw Error("rotate: x has " + std::to_string(x.rows()) + " tokens, the cosines are " +
                std::to_string(tables.cos.rows()) + " x " + std::to_string(n) + ", the sines " +
                std::to_string(tables.sin.rows()) + " x " + std::to_string(tables.sin.cols()));
  }
  Matrix<Scalar> y = x;
  for (Index h = 0; h < heads; ++h) {
    for (Index i = 0; i < n; ++i) {
      const Index first = h * d + (pairs == RotaryPairs::halves ? i : 2 * i);
      const Index second = pairs == RotaryPairs::halves ? first + n : first + 1;
      for (Index t = 0; t < x.rows(); ++t) {
        const Scalar a = x(t, first);
        const Scalar b = x(t, second);
        y(t, first) = a * tables.cos(t, i) - b * tables.sin(t, i);
        y(t, second) = b * tables.cos(t, i) + a * tables.sin(t, i);
      }
    }
  }
  return y;
}

}  // namespace samestate

#pragma once

#include <Eigen/Dense>

/// One head of one sequence: every reference equation is written for it, and every error is judged on it.
namespace samestate {

using Index = Eigen::Index;
template <class Scalar>
using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class Scalar>
using Vector = Eigen::Matrix<Scalar, Eigen::Dynamic, 1>;

/// Inputs of one head, with T tokens, key width dk and value width dv.
template <class Scalar>
struct Sequence {
  Matrix<Scalar> q;              ///< [T, dk], already l2-normalised if the case asks for it
  Matrix<Scalar> k;              ///< [T, dk]
  Matrix<Scalar> v;              ///< [T, dv]
  Vector<Scalar> g;              ///< [T] natural log of the decay; all zero if the system has none
  Vector<Scalar> beta;           ///< [T] write strength; all one if the system has none
  Scalar scale{1};               ///< multiplies the output
  Matrix<Scalar> initial_state;  ///< [dk, dv]

  [[nodiscard]] Index tokens() const { return k.rows(); }
  [[nodiscard]] Index key_width() const { return k.cols(); }
  [[nodiscard]] Index value_width() const { return v.cols(); }

  /// The tokens [begin, end), starting from another state.
  [[nodiscard]] Sequence slice(Index begin, Index end, Matrix<Scalar> state) const {
    const Index n = end - begin;
    return {q.middleRows(begin, n), k.middleRows(begin, n), v.middleRows(begin, n),
            g.segment(begin, n),    beta.segment(begin, n), scale,
            std::move(state)};
  }

  template <class To>
  [[nodiscard]] Sequence<To> cast() const {
    return {q.template cast<To>(),
            k.template cast<To>(),
            v.template cast<To>(),
            g.template cast<To>(),
            beta.template cast<To>(),
            static_cast<To>(scale),
            initial_state.template cast<To>()};
  }
};

/// Outputs of one head.
template <class Scalar>
struct Trajectory {
  Matrix<Scalar> o;  ///< [T, dv]
  Matrix<Scalar>
      delta;  ///< [T, dv] the value that each token writes: u_t in S <- alpha S + k_t u_t^T (rows of V' in
              ///< the chunked form)
  Matrix<Scalar> state;  ///< [dk, dv] after the last token
};

}  // namespace samestate

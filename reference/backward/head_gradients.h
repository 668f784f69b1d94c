#pragma once

#include <string>
#include <vector>

#include "reference/error.h"
#include "reference/rounding_point.h"

/// This header declares the arguments and results of the backward pass of one head. A cotangent of a tensor
/// is the derivative of the loss by it; those of the outputs come in, and those of the inputs, the gradients,
/// go out.
namespace samestate {

namespace points {
inline constexpr PointRow kHeadGradientsRows[] = {
    {"group_sum", "dq, or a part of dk, of a key head, after the sum over its value heads."},
    {"dk", "dk, after the sum of its two parts."},
};
inline constexpr PointTable head_gradients{"head_gradients", PointTier::equation, kHeadGradientsRows};
}  // namespace points

/// The cotangents of the outputs of one head.
template <class Scalar>
struct HeadCotangents {
  Matrix<Scalar> o;      ///< [T, dv]
  Matrix<Scalar> state;  ///< [dk, dv] of the final state; 0 x 0 if nothing reads it, which means zero

  template <class To>
  [[nodiscard]] HeadCotangents<To> cast() const {
    return {o.template cast<To>(), state.template cast<To>()};
  }
};

/// The gradients of one head, in the shapes of a Sequence. The initial state has one whether or not it is
/// zero.
template <class Scalar>
struct HeadGradients {
  Matrix<Scalar> q;              ///< [T, dk]
  Matrix<Scalar> k;              ///< [T, dk]
  Matrix<Scalar> v;              ///< [T, dv]
  Vector<Scalar> g;              ///< [T]; empty if the system has no decay
  Vector<Scalar> beta;           ///< [T]; empty if the system has no write strength
  Matrix<Scalar> initial_state;  ///< [dk, dv]
  /// [T, dk] a part of dk that is not yet in `k`: kernels in chunks keep the one that goes through the delta
  /// correction apart until heads of a group are summed. Empty if `k` is whole.
  Matrix<Scalar> k_correction = {};
};

/// dk from its two parts; `k` itself if there is one part only.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> whole_key_gradient(const Matrix<Scalar>& k, const Matrix<Scalar>& k_correction) {
  if (k_correction.size() == 0) return k;
  return stored<Scalar>(k + k_correction, points::head_gradients["dk"]);
}

/// Throws Error, naming the cotangent, unless the cotangents have the shapes of the outputs of x.
template <class Scalar>
void require_cotangents(const Sequence<Scalar>& x, const HeadCotangents<Scalar>& d) {
  const auto require = [](const char* name, const Matrix<Scalar>& m, Index rows, Index columns) {
    if (m.rows() == rows && m.cols() == columns) return;
    throw Error("backward: the cotangent of " + std::string(name) + " is " + std::to_string(m.rows()) +
                " x " + std::to_string(m.cols()) + ", needed " + std::to_string(rows) + " x " +
                std::to_string(columns));
  };
  require("o", d.o, x.tokens(), x.value_width());
  if (d.state.size() != 0) require("the final state", d.state, x.key_width(), x.value_width());
}

/// The cotangent of the final state, zeros if it is absent.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> final_state_cotangent(const Sequence<Scalar>& x,
                                                   const HeadCotangents<Scalar>& d) {
  if (d.state.size() != 0) return d.state;
  return Matrix<Scalar>::Zero(x.key_width(), x.value_width());
}

/// Gradients of the shapes of x, all zero.
template <class System, class Scalar>
[[nodiscard]] HeadGradients<Scalar> zero_gradients(const Sequence<Scalar>& x) {
  const Index T = x.tokens();
  return {Matrix<Scalar>::Zero(T, x.key_width()),
          Matrix<Scalar>::Zero(T, x.key_width()),
          Matrix<Scalar>::Zero(T, x.value_width()),
          Vector<Scalar>::Zero(System::gated ? T : 0),
          Vector<Scalar>::Zero(System::delta ? T : 0),
          Matrix<Scalar>::Zero(x.key_width(), x.value_width()),
          {}};
}

/// The gradients of sequences that were packed end to end.
template <class Scalar>
struct PackedGradients {
  HeadGradients<Scalar> tokens;  ///< all rows; rows that no sequence owns are 0, and initial_state is empty
  std::vector<Matrix<Scalar>> initial_states;  ///< one [dk, dv] a sequence
};

/// The backward pass of `packed`: sequence n holds the tokens [offsets[n], offsets[n+1]), starts from
/// initial_states[n], and d_states[n] is the cotangent of its final state (0 x 0: none). d_o: [T, dv]. Rows
/// behind the last offset belong to no sequence, and their gradients are zero. `run` evaluates the backward
/// pass of one sequence: (Sequence, HeadCotangents) -> HeadGradients. Throws Error if offsets do not start at
/// 0, decrease, or pass T, or if there is not one state and one cotangent a sequence.
template <class System, class Scalar, class Run>
[[nodiscard]] PackedGradients<Scalar> packed_backward(const Sequence<Scalar>& x,
                                                      const std::vector<Index>& offsets,
                                                      const std::vector<Matrix<Scalar>>& initial_states,
                                                      const Matrix<Scalar>& d_o,
                                                      const std::vector<Matrix<Scalar>>& d_states,
                                                      Run&& run) {
  if (offsets.empty() || offsets.front() != 0 || offsets.back() > x.tokens() ||
      initial_states.size() + 1 != offsets.size() || d_states.size() != initial_states.size()) {
    throw Error("packed_backward: offsets must start at 0, end within T=" + std::to_string(x.tokens()) +
                " and bound one sequence an initial state and a cotangent of the final state; there are " +
                std::to_string(offsets.size()) + " offsets, " + std::to_string(initial_states.size()) +
                " states and " + std::to_string(d_states.size()) + " cotangents");
  }
  PackedGradients<Scalar> out{zero_gradients<System>(x), {}};
  out.tokens.initial_state.resize(0, 0);
  for (std::size_t n = 0; n + 1 < offsets.size(); ++n) {
    const Index begin = offsets[n];
    const Index L = offsets[n + 1] - begin;
    if (L < 0) {
      throw Error("packed_backward: offset " + std::to_string(offsets[n + 1]) + " is below its predecessor " +
                  std::to_string(begin));
    }
    const HeadGradients<Scalar> part = run(x.slice(begin, begin + L, initial_states[n]),
                                           HeadCotangents<Scalar>{d_o.middleRows(begin, L), d_states[n]});
    out.tokens.q.middleRows(begin, L) = part.q;
    out.tokens.k.middleRows(begin, L) = whole_key_gradient(part.k, part.k_correction);
    out.tokens.v.middleRows(begin, L) = part.v;
    if constexpr (System::gated) out.tokens.g.segment(begin, L) = part.g;
    if constexpr (System::delta) out.tokens.beta.segment(begin, L) = part.beta;
    out.initial_states.push_back(part.initial_state);
  }
  return out;
}

}  // namespace samestate

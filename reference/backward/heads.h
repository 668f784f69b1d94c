#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "reference/backward/head_gradients.h"
#include "reference/backward/l2norm.h"
#include "reference/head_parallel.h"

/// The backward pass of all heads of a call: several value heads may share a key head, and q and k may be
/// l2-normalised inside.
namespace samestate {

/// The gradients of all heads: of q and k one a key head, of the others one a value head.
template <class Scalar>
struct HeadsGradients {
  std::vector<Matrix<Scalar>> q, k;           ///< [Hk] of [T, dk]
  std::vector<Matrix<Scalar>> v;              ///< [Hv] of [T, dv]
  std::vector<Vector<Scalar>> g, beta;        ///< [Hv] of [T], empty vectors where the system has none
  std::vector<Matrix<Scalar>> initial_state;  ///< [Hv] of [dk, dv]
};

namespace detail {

/// The sums over the value heads of each key head, in the order of the value heads. Where a key head serves
/// one value head there is no sum. parts: [Hv] -> [Hk].
template <class Scalar>
[[nodiscard]] std::vector<Matrix<Scalar>> summed_over_groups(const std::vector<Matrix<Scalar>>& parts,
                                                             const std::vector<Index>& key_of,
                                                             std::size_t key_heads) {
  std::vector<Matrix<Scalar>> out(key_heads);
  for (std::size_t h = 0; h < parts.size(); ++h) {
    Matrix<Scalar>& sum = out[static_cast<std::size_t>(key_of[h])];
    if (sum.size() == 0) {
      sum = parts[h];
    } else {
      sum += parts[h];
    }
  }
  if (parts.size() > key_heads) {
    for (Matrix<Scalar>& sum : out) sum = stored(std::move(sum), points::head_gradients["group_sum"]);
  }
  return out;
}

/// Throws Error unless there is one cotangent a value head, and every key head serves one.
template <class Scalar>
void require_heads(const Heads<Scalar>& x, std::size_t cotangents) {
  std::vector<bool> served(x.k.size(), false);
  for (const Index key : x.key_of) served.at(static_cast<std::size_t>(key)) = true;
  if (cotangents != x.v.size() || x.key_of.size() != x.v.size() ||
      std::find(served.begin(), served.end(), false) != served.end()) {
    throw Error("heads_backward: " + std::to_string(cotangents) + " cotangents for " +
                std::to_string(x.v.size()) + " value heads on " + std::to_string(x.k.size()) +
                " key heads; give one a value head, and let every key head serve at least one");
  }
}

}  // namespace detail

/// The gradients of all heads. `run` evaluates one: (Sequence, HeadCotangents) -> HeadGradients, in any form.
/// With `normalises` the forward pass takes l2norm(q) and l2norm(k), and the gradients are those of q and k
/// as they are given. d: one a value head. Throws Error if the numbers of heads disagree.
template <class Scalar, class Run>
[[nodiscard]] HeadsGradients<Scalar> heads_backward(const Heads<Scalar>& x,
                                                    const std::vector<HeadCotangents<Scalar>>& d, Run&& run,
                                                    bool normalises = false) {
  detail::require_heads(x, d.size());
  Heads<Scalar> inner = x;
  if (normalises) {
    // A norm that is a kernel of its own hands its rows over in the format of the inputs.
    for (std::vector<Matrix<Scalar>>* const heads : {&inner.q, &inner.k}) {
      for (Matrix<Scalar>& rows : *heads) rows = stored(l2norm(rows), points::l2norm_backward["operand"]);
    }
  }
  HeadsGradients<Scalar> out;
  std::vector<Matrix<Scalar>> dq, dk, correction;
  for (std::size_t h = 0; h < x.v.size(); ++h) {
    HeadGradients<Scalar> head = run(inner.head(h), d[h]);
    dq.push_back(std::move(head.q));
    dk.push_back(std::move(head.k));
    correction.push_back(std::move(head.k_correction));
    out.v.push_back(std::move(head.v));
    out.g.push_back(std::move(head.g));
    out.beta.push_back(std::move(head.beta));
    out.initial_state.push_back(std::move(head.initial_state));
  }
  out.q = detail::summed_over_groups(dq, x.key_of, x.q.size());
  out.k = detail::summed_over_groups(dk, x.key_of, x.k.size());
  correction = detail::summed_over_groups(correction, x.key_of, x.k.size());
  for (std::size_t h = 0; h < x.k.size(); ++h) out.k[h] = whole_key_gradient(out.k[h], correction[h]);
  for (std::size_t h = 0; normalises && h < x.q.size(); ++h) {
    out.q[h] = l2norm_backward(x.q[h], out.q[h]);
    out.k[h] = l2norm_backward(x.k[h], out.k[h]);
  }
  return out;
}

}  // namespace samestate

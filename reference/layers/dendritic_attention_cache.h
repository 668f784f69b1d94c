#pragma once

#include <string>
#include <vector>

#include "reference/layers/dendritic_attention_parameters.h"
#include "reference/short_convolution.h"

/// The state that the dendritic layer carries from call to call, for one sequence (EQUATIONS 7.4). The router
/// has no state, and there is no position counter.
namespace samestate {

template <class Scalar>
struct DendriticCache {
  std::vector<Matrix<Scalar>> conv_q;  ///< E of [W - 1, H d]: UNMASKED inputs of every branch, chosen or not
  std::vector<Matrix<Scalar>> conv_k;  ///< E of [W - 1, H d]
  Matrix<Scalar> conv_v;              ///< [W - 1, H dv]: stored once, because the branches share their values
  std::vector<Matrix<Scalar>> state;  ///< N E H virtual heads of [w, dv]
  bool begun = false;                 ///< a real token has been seen
  bool padded_inside = false;  ///< a pad came after a real token, so the convolution states hold zeros for it
};

/// The cache of a sequence that has not begun: all zeros. Throws Error as require_dendritic_sizes does.
template <class Scalar>
[[nodiscard]] DendriticCache<Scalar> empty_dendritic_cache(const DendriticSizes& s) {
  require_dendritic_sizes(s);
  const auto branches = static_cast<std::size_t>(s.branches());
  const Matrix<Scalar> conv = empty_convolution_state<Scalar>(s.convolution_width, s.heads * s.head_width);
  DendriticCache<Scalar> cache;
  cache.conv_q.assign(branches, conv);
  cache.conv_k.assign(branches, conv);
  cache.conv_v = empty_convolution_state<Scalar>(s.convolution_width, s.heads * s.value_width);
  cache.state.assign(static_cast<std::size_t>(s.virtual_heads()),
                     Matrix<Scalar>::Zero(s.split().width, s.value_width));
  return cache;
}

/// Throws Error if the cache does not belong to this layer, or if decode must not continue from it: after
/// right padding the recurrent state is right, but the convolution states are not (7.4).
template <class Scalar>
void require_dendritic_cache(const DendriticCache<Scalar>& cache, const DendriticSizes& s) {
  const auto require = [](const char* name, const Matrix<Scalar>& m, Index rows, Index columns) {
    if (m.rows() != rows || m.cols() != columns) {
      throw Error("dendritic_attention: cache " + std::string(name) + " is " + std::to_string(m.rows()) +
                  " x " + std::to_string(m.cols()) + ", must be " + std::to_string(rows) + " x " +
                  std::to_string(columns));
    }
  };
  const auto branches = static_cast<std::size_t>(s.branches());
  if (cache.conv_q.size() != branches || cache.conv_k.size() != branches ||
      cache.state.size() != static_cast<std::size_t>(s.virtual_heads())) {
    throw Error("dendritic_attention: cache of " + std::to_string(cache.conv_q.size()) + " and " +
                std::to_string(cache.conv_k.size()) + " branches and " + std::to_string(cache.state.size()) +
                " virtual heads, must be " + std::to_string(branches) + " and " +
                std::to_string(s.virtual_heads()));
  }
  const Index taps = s.convolution_width - 1;
  for (const Matrix<Scalar>& m : cache.conv_q) require("conv_q", m, taps, s.heads * s.head_width);
  for (const Matrix<Scalar>& m : cache.conv_k) require("conv_k", m, taps, s.heads * s.head_width);
  require("conv_v", cache.conv_v, taps, s.heads * s.value_width);
  for (const Matrix<Scalar>& m : cache.state) require("state", m, s.split().width, s.value_width);
  if (cache.padded_inside) {
    throw Error(
        "dendritic_attention: the cache comes from a sequence with a pad after a real token, its convolution "
        "states hold zeros for it; pad on the left to continue");
  }
}

/// Updates `begun` and `padded_inside` for the tokens of a call. real: [T], false for a pad.
template <class Scalar>
void note_tokens(DendriticCache<Scalar>& cache, const std::vector<bool>& real) {
  for (const bool token : real) {
    if (!token && cache.begun) cache.padded_inside = true;
    if (token) cache.begun = true;
  }
}

}  // namespace samestate

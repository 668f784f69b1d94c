#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "oracles/given.h"
#include "reference/contract.h"
#include "reference/sequence.h"
#include "reference/view.h"

namespace samestate {

/// Sizes and settings of a batch of N sequences: B sequences of T tokens each or, if `offsets` is not empty,
/// sequences packed end to end with B = 1 and offsets [N + 1].
struct BatchShape {
  std::int64_t B = 1, T = 0, Hk = 1, Hv = 1, dk = 1, dv = 1;
  std::vector<std::int64_t> offsets;
  HeadMap head_map = HeadMap::interleaved;
  double scale = 1.0;
  bool l2norm = false;         ///< the kernel normalises q and k; the oracle does so in its own precision
  bool initial_state = false;  ///< if absent, it is 0
  Given given = {};  ///< the form in which the kernel receives q, g and beta; the oracle reads the same
                     ///< values

  [[nodiscard]] std::int64_t sequences() const {
    return offsets.empty() ? B : static_cast<std::int64_t>(offsets.size()) - 1;
  }
  [[nodiscard]] std::int64_t begin(std::int64_t n) const {
    return offsets.empty() ? 0 : offsets[static_cast<std::size_t>(n)];
  }
  [[nodiscard]] std::int64_t end(std::int64_t n) const {
    return offsets.empty() ? T : offsets[static_cast<std::size_t>(n) + 1];
  }
};

/// Inputs that oracle and kernel both read, already rounded to the contract's input format (DESIGN 4).
/// Row-major: q, k [B,T,Hk,dk], v [B,T,Hv,dv], g, beta [B,T,Hv] (empty if absent), initial_state [N,Hv,dk,dv]
/// (empty if absent).
struct Batch {
  BatchShape shape;
  std::vector<float> q, k, v, g, beta, initial_state;
};

/// The outputs of a kernel: o [B,T,Hv,dv], final_state [N,Hv,dk,dv].
struct Outputs {
  std::vector<float> o, final_state;
};

/// The key head that serves value head h. Throws Error unless Hv is a multiple of Hk.
[[nodiscard]] std::int64_t key_head(std::int64_t h, std::int64_t Hk, std::int64_t Hv, HeadMap map);

/// One head of one sequence as the references read it: in float64, with q and k normalised if the shape asks
/// for it (GDN-32).
[[nodiscard]] Sequence<double> sequence_of(const Batch& batch, std::int64_t n, std::int64_t h);

/// The rows of `outputs` that belong to sequence n, head h: o [T_n, dv] and the state [dk, dv].
[[nodiscard]] Matrix<double> rows_of(const Batch& batch, const Outputs& outputs, std::int64_t n,
                                     std::int64_t h);
[[nodiscard]] Matrix<double> state_of(const Batch& batch, const Outputs& outputs, std::int64_t n,
                                      std::int64_t h);

/// Throws Error at the first NaN or infinity, naming tensor, coordinates and value: inputs must be finite.
void require_finite(const Batch& batch);

}  // namespace samestate

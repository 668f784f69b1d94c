#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "oracles/given.h"
#include "reference/contract.h"
#include "reference/sequence.h"
#include "reference/view.h"

namespace samestate {

/// Sizes and settings of a batch of sequences. N sequences: B of T tokens each, or, when `offsets` is not
/// empty, packed end to end with B = 1 and offsets [N + 1].
struct BatchShape {
  std::int64_t B = 1, T = 0, Hk = 1, Hv = 1, dk = 1, dv = 1;
  std::vector<std::int64_t> offsets;
  HeadMap head_map = HeadMap::interleaved;
  double scale = 1.0;
  bool l2norm = false;         ///< the kernel normalises q and k; the oracle does so in its own precision
  bool initial_state = false;  ///< absent: 0
  Given given = {};            ///< how the kernel gets q, g and beta; the oracle reads them as it does

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
/// Row-major: q, k [B,T,Hk,dk], v [B,T,Hv,dv], g, beta [B,T,Hv] (empty: absent), initial_state [N,Hv,dk,dv]
/// (empty: absent).
struct Batch {
  BatchShape shape;
  std::vector<float> q, k, v, g, beta, initial_state;
};

/// What a kernel returned: o [B,T,Hv,dv], final_state [N,Hv,dk,dv].
struct Outputs {
  std::vector<float> o, final_state;
};

/// The key head that serves value head h. Throws Error unless Hv is a multiple of Hk.
[[nodiscard]] std::int64_t key_head(std::int64_t h, std::int64_t Hk, std::int64_t Hv, HeadMap map);

/// One head of one sequence as the references read it: float64, q and k normalised where the shape asks
/// (GDN-32).
[[nodiscard]] Sequence<double> sequence_of(const Batch& batch, std::int64_t n, std::int64_t h);

/// The rows of `outputs` that belong to sequence n, head h: o [T_n, dv] and the state [dk, dv].
[[nodiscard]] Matrix<double> rows_of(const Batch& batch, const Outputs& outputs, std::int64_t n,
                                     std::int64_t h);
[[nodiscard]] Matrix<double> state_of(const Batch& batch, const Outputs& outputs, std::int64_t n,
                                      std::int64_t h);

/// Throws Error that names tensor, coordinates and value at the first NaN or infinity: inputs must be finite.
void require_finite(const Batch& batch);

}  // namespace samestate

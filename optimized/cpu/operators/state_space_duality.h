#pragma once

#include <cstdint>
#include <vector>

#include "optimized/cpu/operators/tensor.h"
#include "optimized/operator_kernel.h"

namespace samestate::cpu {

/// Mamba-2's state space duality in chunks: the quadratic dual inside, with the state passed on. Throws Error
/// for chunk < 1.
[[nodiscard]] Outcome state_space_duality_chunks(const OperatorArguments& call, const Contract& contract);

/// One head of one sequence: T tokens, P channels, N states.
struct DualityHead {
  TensorRows<const float> x;      ///< [T, P]
  TensorRows<const float> dt;     ///< [T, 1] before bias and softplus
  TensorRows<const float> B, C;   ///< [T, N] for the head's group
  TensorRows<const float> state;  ///< [P, N]
  TensorRows<float> y;            ///< [T, P]
  TensorRows<float> last_state;   ///< [P, N]
  float dt_bias = 0.0F;
  float rate = -1.0F;  ///< A, negative
  float skip = 0.0F;
  Format output = Format::fp32;
  Format state_format = Format::fp32;
  MatrixUnit unit = {};
};

/// Scratch of one thread, which evaluates head after head.
class DualityChunks {
 public:
  void run(const DualityHead& head, std::int64_t chunk);

 private:
  void step(const DualityHead& head, std::int64_t begin, std::int64_t n);

  Block state_;                                      ///< [N, P], the transpose of a head's state
  Block C_, B_transposed_, scores_, writes_;         ///< writes holds Delta x
  Block inside_, before_, kept_transposed_, added_;  ///< kept holds B decayed to the chunk's end
  std::vector<float> delta_, sums_, decay_;
};

}  // namespace samestate::cpu

#pragma once

#include <cstdint>
#include <vector>

#include "optimized/cpu/operators/tensor.h"
#include "optimized/operator_kernel.h"

namespace samestate::cpu {

/// Mamba's selective scan. Throws Error for chunk < 1.
/// In chunks: the maps of a chunk are composed from its first token on, then applied to the state before it.
[[nodiscard]] Outcome selective_scan_chunks(const OperatorArguments& call, const Contract& contract);

/// All prefixes of the sequence by Blelloch's tree, up and then down.
[[nodiscard]] Outcome selective_scan_tree(const OperatorArguments& call, const Contract& contract);

/// One sequence of a scan: T tokens, D channels, N states per channel.
struct ScanSequence {
  TensorRows<const float> u, dt, z;  ///< [T, D]; dt before bias and softplus, z before silu
  TensorRows<const float> B, C;      ///< [T, N]
  const float* dt_bias = nullptr;    ///< [D]
  const float* rates = nullptr;      ///< [D, N] A, negative
  const float* skip = nullptr;       ///< [D]
  TensorRows<const float> state;     ///< [D, N]
  TensorRows<float> out;             ///< [T, D]
  TensorRows<float> last_state;      ///< [D, N]
  bool hold = false;                 ///< zero-order hold if true, else Euler
  Format output = Format::fp32;
  Format state_format = Format::fp32;
};

/// A = -exp(A_log), dense.
[[nodiscard]] std::vector<float> rates_of(const NamedTensor<const float>& A_log);

/// Scratch of one thread, which scans channel after channel.
class ChannelScan {
 public:
  /// Channel d in chunks, with the state passed on.
  void by_chunks(const ScanSequence& x, std::int64_t d, std::int64_t chunk);
  /// Channel d as one tree over all tokens.
  void by_tree(const ScanSequence& x, std::int64_t d);

 private:
  /// Writes the maps h -> a h + b of the tokens [begin, begin + n) to rows 0 .. n of a_ and b_.
  void form_maps(const ScanSequence& x, std::int64_t d, std::int64_t begin, std::int64_t n);
  /// Applies the composed maps in a_ and b_ to h_, which becomes the last state, and writes the outputs.
  void read(const ScanSequence& x, std::int64_t d, std::int64_t begin, std::int64_t n);
  void begin_channel(const ScanSequence& x, std::int64_t d);
  void end_channel(const ScanSequence& x, std::int64_t d);

  Block a_, b_;            ///< one row per token
  Block tree_a_, tree_b_;  ///< one row per node, in place
  std::vector<float> h_, next_;
};

}  // namespace samestate::cpu

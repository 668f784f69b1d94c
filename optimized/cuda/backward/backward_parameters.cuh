#pragma once

#include <cstdint>
#include <type_traits>

#include "optimized/cuda/delta/chunk_mma_dense_generic.cuh"
#include "optimized/cuda/host/grid.cuh"
#include "optimized/cuda/units/fp16.cuh"

/// The backward pass of the recurrent family in chunks: what its launches share. Equations and the names of the rounding points
/// are those of reference/backward/chunk.h; the decays are e^x, not 2^(x log2 e), under every contract.
///
/// Five launches, in this order: ChunkPreparation (all chunks at once: T, W, U, P^T dO), ForwardStates (the states before the
/// chunks and N, one chunk after the other), ReverseStates (the cotangents D of the states after them and dN, backwards),
/// ChunkGradients (all chunks at once: everything else, q and k a value head), KeyGradients (sums over the value heads of a key
/// head). Where q and k are normalised inside, NormalisedKeys comes first. Nothing is added from two blocks, so the bits are the
/// same in every run.
namespace samestate::cuda {

inline constexpr int kBackwardPanel = 64;  ///< columns of keys or values that a block takes at a time
static_assert(kChunkLimit <= kBackwardPanel);

/// The format that results are kept in at rounding points where operands are fp32.
enum class KeptFormat : std::uint8_t { fp32, bf16, fp16 };

struct BackwardChunk {
  std::int64_t first = 0;  ///< row of its first token
  std::int64_t tokens = 0;
};

struct BackwardSequence {
  std::int64_t first_chunk = 0;
  std::int64_t chunks = 0;
};

/// One call as the device sees it: dense tensors in device memory. `rows` is B T. Operand is the format of the contract, or
/// float with any contract.
template <class Operand>
struct BackwardParameters {
  const Operand* q = nullptr;                   ///< [rows, Hk, dk], normalised where the call says so
  const Operand* k = nullptr;                   ///< [rows, Hk, dk], likewise
  const Operand* v = nullptr;                   ///< [rows, Hv, dv]
  const float* g = nullptr;                     ///< [rows, Hv]; null if there is no decay
  const float* beta = nullptr;                  ///< [rows, Hv]; null means 1
  const float* initial_state = nullptr;         ///< [N, Hv, dk, dv]; null means 0
  const Operand* d_o = nullptr;                 ///< [rows, Hv, dv]; null means 0
  const float* d_final_state = nullptr;         ///< [N, Hv, dk, dv]; null means 0
  const BackwardChunk* chunks = nullptr;        ///< [chunks], those of a sequence adjacent and in order
  const BackwardSequence* sequences = nullptr;  ///< [N]

  // The gradients; null where one is not wanted.
  Operand* d_q = nullptr;            ///< [rows, Hk, dk]
  Operand* d_k = nullptr;            ///< [rows, Hk, dk]
  Operand* d_v = nullptr;            ///< [rows, Hv, dv]
  float* d_g = nullptr;              ///< [rows, Hv]
  float* d_beta = nullptr;           ///< [rows, Hv]
  float* d_initial_state = nullptr;  ///< [N, Hv, dk, dv]

  // Each launch leaves these to the next ones.
  float* sums = nullptr;            ///< [rows, Hv] G
  Operand* inverse = nullptr;       ///< [chunks, Hv, padded chunk, padded chunk] T
  Operand* w = nullptr;             ///< [rows, Hv, dk]
  Operand* n = nullptr;             ///< [rows, Hv, dv] U, then N; without a delta term v
  Operand* d_n = nullptr;           ///< [rows, Hv, dv] P^T dO, then dN
  Operand* states = nullptr;        ///< [chunks, Hv, dk, dv] S before each chunk, as an operand
  Operand* d_states = nullptr;      ///< [chunks, Hv, dk, dv] D after each chunk, as an operand
  Operand* q_part = nullptr;        ///< [rows, Hv, dk] dq of a value head
  Operand* k_part = nullptr;        ///< [rows, Hv, dk] dk of a value head through scores and state
  Operand* k_correction = nullptr;  ///< [rows, Hv, dk] dk of a value head through T and A
  const Operand* raw_q = nullptr;   ///< [rows, Hk, dk] q as it was given; null if nothing is normalised
  const Operand* raw_k = nullptr;   ///< [rows, Hk, dk], likewise
  Operand* normalised_q = nullptr;  ///< [rows, Hk, dk]
  Operand* normalised_k = nullptr;  ///< [rows, Hk, dk]

  std::int64_t chunk_count = 0, sequence_count = 0, Hk = 1, Hv = 1;
  std::int64_t first_row = 0, rows = 0;  ///< the rows that sequences own
  int dk = 1, dv = 1;
  int chunk = 1;
  int tile = 16;  ///< columns of a state that a block of the recurrences takes
  float scale = 1.0F;
  bool delta = false;
  bool tiled_heads = false;  ///< key head h mod Hk instead of h / (Hv / Hk)
  KeptFormat kept = KeptFormat::fp32;

  [[nodiscard]] SAMESTATE_HOST_DEVICE int padded_chunk() const { return (chunk + 15) / 16 * 16; }
  [[nodiscard]] SAMESTATE_HOST_DEVICE int padded_keys() const { return (dk + 15) / 16 * 16; }
  [[nodiscard]] SAMESTATE_HOST_DEVICE std::int64_t tiles() const { return (dv + tile - 1) / tile; }
  [[nodiscard]] SAMESTATE_HOST_DEVICE std::int64_t key_head(std::int64_t head) const {
    return tiled_heads ? head % Hk : head / (Hv / Hk);
  }
  [[nodiscard]] SAMESTATE_HOST_DEVICE bool keys_aligned() const {
    return dk * static_cast<int>(sizeof(Operand)) % 16 == 0;
  }
  [[nodiscard]] SAMESTATE_HOST_DEVICE bool values_aligned() const {
    return dv * static_cast<int>(sizeof(Operand)) % 16 == 0;
  }
};

/// x as it is kept at a rounding point.
template <class Operand>
SAMESTATE_DEVICE Operand kept_value(const BackwardParameters<Operand>& p, float x) {
  if constexpr (std::is_same_v<Operand, float>) {
    if (p.kept == KeptFormat::bf16) return widen(narrow<Bf16>(x));
    if (p.kept == KeptFormat::fp16) return widen(narrow<Fp16>(x));
    return x;
  } else {
    return narrow<Operand>(x);
  }
}

/// One chunk of one value head.
struct BackwardPlace {
  std::int64_t chunk = 0;
  std::int64_t first = 0;  ///< row of its first token
  int tokens = 0, head = 0, key_head = 0;
};

template <class Operand>
SAMESTATE_DEVICE BackwardPlace place_of(const BackwardParameters<Operand>& p, std::int64_t chunk,
                                        std::int64_t head) {
  const BackwardChunk of = p.chunks[chunk];
  return {chunk, of.first, static_cast<int>(of.tokens), static_cast<int>(head),
          static_cast<int>(p.key_head(head))};
}

/// The gates of a chunk in shared memory, [padded chunk] each. Tokens behind its end have beta = g = 0.
struct BackwardGates {
  float *beta, *G, *from_start, *to_end;

  static SAMESTATE_HOST_DEVICE int bytes(int rows) { return 4 * rows * 4; }
  SAMESTATE_DEVICE BackwardGates(float* at, int rows)
      : beta(at), G(at + rows), from_start(at + 2 * rows), to_end(at + 3 * rows) {}

  /// E_ij x for j <= i, else zero; the difference of no others is exponentiated.
  SAMESTATE_DEVICE float decayed(int i, int j, float x) const {
    return i >= j ? x * exponential(G[i] - G[j]) : 0.0F;
  }
};

/// Loads beta and the sums that ChunkPreparation left, and makes e^G and e^{G_C - G} of them. Every thread reads only what it
/// wrote until the next barrier.
template <class Operand>
SAMESTATE_DEVICE void load_gates(const BackwardParameters<Operand>& p, const BackwardPlace& at,
                                 const BackwardGates& gates, int rows) {
  const float last = p.sums[(at.first + at.tokens - 1) * p.Hv + at.head];
  for (int i = thread_index(); i < rows; i += block_threads()) {
    const std::int64_t gate = (at.first + i) * p.Hv + at.head;
    const bool exists = i < at.tokens;
    gates.beta[i] = !exists ? 0.0F : p.beta != nullptr ? p.beta[gate] : 1.0F;
    gates.G[i] = exists ? p.sums[gate] : last;
    gates.from_start[i] = exponential(gates.G[i]);
    gates.to_end[i] = exponential(last - gates.G[i]);
  }
}

/// Rows [0, tokens) and columns [0, columns) of shared memory to global memory, whose rows are `step` apart.
template <class Operand>
SAMESTATE_DEVICE void store_rows(Operand* to, std::int64_t step, const Operand* from, int stride, int tokens,
                                 int columns, bool aligned) {
  constexpr int kVector = 16 / static_cast<int>(sizeof(Operand));
  if (aligned) {
    const int vectors = columns / kVector;
    for (int i = thread_index(); i < tokens * vectors; i += block_threads()) {
      const int row = i / vectors, column = i % vectors * kVector;
      *reinterpret_cast<Vector<Operand, kVector>*>(to + row * step + column) =
          *reinterpret_cast<const Vector<Operand, kVector>*>(from + row * stride + column);
    }
    return;
  }
  for (int i = thread_index(); i < tokens * columns; i += block_threads()) {
    const int row = i / columns, column = i % columns;
    to[row * step + column] = from[row * stride + column];
  }
}

/// Sums of a product that several panels of its depth add to: at most 64 x 64 elements, kept by the 8 warps of a block in
/// their registers.
template <class Operand>
struct BackwardSums {
  static constexpr int kWarps = 8, kAcross = kBackwardPanel / 16, kEach = kAcross * kAcross / kWarps;
  Tile<Operand> tiles[kEach];

  static SAMESTATE_DEVICE int row(int i) { return (warp_index() + kWarps * i) / kAcross * 16; }
  static SAMESTATE_DEVICE int column(int i) { return (warp_index() + kWarps * i) % kAcross * 16; }

  /// Adds A B, whose sizes are multiples of 16.
  template <Left left, Right right>
  SAMESTATE_DEVICE void add(const Operand* a, const Operand* b, int stride, int rows, int columns,
                            int depth) {
    SAMESTATE_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int r = row(i), c = column(i);
      if (r >= rows || c >= columns) continue;
      tiles[i].template multiply<left, right>(a + (left == Left::rows ? r * stride : r), stride,
                                              b + (right == Right::rows ? c : c * stride), stride, depth);
    }
  }

  /// each(row, column, sum), with the same `left` and `right`.
  template <Left left, Right right, class Each>
  SAMESTATE_DEVICE void visit(int rows, int columns, Each&& each) const {
    SAMESTATE_UNROLL
    for (int i = 0; i < kEach; ++i) {
      if (row(i) < rows && column(i) < columns) tiles[i].template visit<left, right>(row(i), column(i), each);
    }
  }
};

/// Columns of a panel from `first` on, and the same up to a multiple of 16.
struct BackwardPanel {
  int first, columns, padded;
  SAMESTATE_DEVICE BackwardPanel(int begin, int width)
      : first(begin),
        columns(width - begin < kBackwardPanel ? width - begin : kBackwardPanel),
        padded((columns + 15) / 16 * 16) {}
};

}  // namespace samestate::cuda

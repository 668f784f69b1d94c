#pragma once

#include <cmath>
#include <cstdint>

#include "optimized/cuda/host/grid.cuh"
#include "optimized/cuda/pointwise/pointwise.cuh"
#include "optimized/cuda/units/row_parts.cuh"

/// Mamba's selective scan (EQUATIONS 5.10), token by token: h = e^{Delta A} h + Bbar u, out = (C h + D u) silu(z).
namespace samestate::cuda {

template <class Operand>
struct SelectiveScanParameters {
  const Operand* u = nullptr;  ///< [batch, tokens, D], dt before bias and softplus and z before silu too
  const Operand* dt = nullptr;
  const Operand* z = nullptr;
  const Operand* B = nullptr;  ///< [batch, tokens, N], C too
  const Operand* C = nullptr;
  const float* A_log = nullptr;    ///< [D, N]
  const float* dt_bias = nullptr;  ///< [D], skip too
  const float* skip = nullptr;
  const float* state = nullptr;  ///< [batch, D, N], last_state too
  float* last_state = nullptr;
  Operand* out = nullptr;  ///< [batch, tokens, D]
  std::int64_t batch = 1;
  std::int64_t tokens = 0;
  int D = 1;
  int N = 1;
};

/// e^x - 1 within two ulp, also of a small x.
SAMESTATE_DEVICE float exponential_minus_1(float x) {
#ifdef __CUDACC__
  return expm1f(x);
#else
  return static_cast<float>(std::expm1(static_cast<double>(x)));
#endif
}

/// A block takes `channels` channels of one sequence from the first token to the last. A channel's states lie in the registers of
/// `lanes` lanes, 4 * quads in each: so even 4096 channels are warps enough for every SM, and the exponentials, which are the
/// cost, are made once; a sequence cut in segments would make them twice. A tile of tokens goes through shared memory, fp32,
/// softplus done; the next one is on its way in registers meanwhile.
template <class Operand, int channels, int quads, int lanes, bool hold>
struct SelectiveScan {
  using Parameters = SelectiveScanParameters<Operand>;
  static constexpr int n = 16 / static_cast<int>(sizeof(Operand));
  static constexpr int kChannels = channels;
  static constexpr int kTokens =
      4 * n;  ///< tokens of a tile, such that a warp's lanes for one state group move one access each
  static constexpr int kThreads = kChannels * lanes;
  static constexpr int kMovers =
      kChannels / n * kTokens;  ///< threads that move the tile of each tensor, an access each
  static constexpr int kPadded = 4 * quads * lanes;  ///< states, those beyond N zero
  static constexpr int kMatrixLoads =
      2 * kTokens * kPadded / n / kThreads;  ///< accesses per thread and tile, for B and C
  static constexpr int kRow = kTokens + 4;
  /// Four lanes' grids are short of warps: twelve an SM, 168 registers each, and two groups of tokens under way.
  static constexpr int kUnrolled = lanes == 4 && !hold && sizeof(Operand) == 2 ? 2 : 1;
  static constexpr int kResidentBlocks = lanes == 4 && !hold && sizeof(Operand) == 2 ? 384 / kThreads : 1;
  static_assert(lanes >= 4 && kMovers <= kThreads);

  struct Tile {
    float delta[kChannels * kRow + kChannels];  ///< indexed by `position`
    float input[kChannels * kRow + kChannels];  ///< factor of B: Delta u, or u with `hold`
    float y[kChannels * kRow + kChannels];      ///< C h
    float B[kTokens * kPadded];
    float C[kTokens * kPadded];
  };
  struct Shared {
    Tile tiles[2];
  };

  /// A channel's tokens are adjacent; the shift of every n-th channel keeps the movers' accesses on banks of their own.
  static SAMESTATE_DEVICE int position(int channel, int token) {
    return channel * kRow + channel / n * n + token;
  }

  using Elements = Vector<Operand, n>;
  struct Moved {
    Elements u, dt, z;
    Elements matrix;  ///< elements of B or C, if a thread has one access of them
  };

  /// A thread's place in its block.
  struct Place {
    std::int64_t b;
    int first;           ///< channel of the block
    int token, column;   ///< place in the tile of the access that it moves
    bool moves, vector;  ///< rows of D: by whole accesses
    bool matrix_vector;  ///< rows of N
  };

  struct MatrixAccess {
    int matrix, token, column;
  };
  static SAMESTATE_DEVICE MatrixAccess matrix_access(int i) {
    constexpr int kOfRow = kPadded / n;
    const int access = i * kThreads + thread_index();
    const int row = access / kOfRow;
    return {row / kTokens, row % kTokens, access % kOfRow * n};
  }

  static SAMESTATE_DEVICE Elements load_matrix(const Parameters& p, const Place& at, std::int64_t begin,
                                               int i) {
    const auto [matrix, token, column] = matrix_access(i);
    if (begin + token >= p.tokens) return {};
    const Operand* const row = (matrix == 0 ? p.B : p.C) + (at.b * p.tokens + begin + token) * p.N;
    return load_part<Operand, n>(row, column, p.N, at.matrix_vector);
  }
  static SAMESTATE_DEVICE void store_matrix(Tile& tile, const Elements& from, int i) {
    const auto [matrix, token, column] = matrix_access(i);
    float* const to = (matrix == 0 ? tile.B : tile.C) + token * kPadded + column;
    SAMESTATE_UNROLL
    for (int e = 0; e < n; e += 4) {
      const float some[4] = {element(from, e), element(from, e + 1), element(from, e + 2),
                             element(from, e + 3)};
      *reinterpret_cast<Vector<float, 4>*>(to + e) = narrowed<float>(some);
    }
  }

  static SAMESTATE_DEVICE Moved load(const Parameters& p, const Place& at, std::int64_t begin) {
    Moved to{};
    const std::int64_t t = begin + at.token;
    if (at.moves && t < p.tokens) {
      const std::int64_t row = (at.b * p.tokens + t) * p.D;
      to.u = load_part<Operand, n>(p.u + row, at.first + at.column, p.D, at.vector);
      to.dt = load_part<Operand, n>(p.dt + row, at.first + at.column, p.D, at.vector);
      to.z = load_part<Operand, n>(p.z + row, at.first + at.column, p.D, at.vector);
    }
    if constexpr (kMatrixLoads == 1) to.matrix = load_matrix(p, at, begin, 0);
    return to;
  }

  /// Tokens beyond the last change no state: Delta 0.
  static SAMESTATE_DEVICE void prepare(const Parameters& p, const Place& at, const Moved& moved,
                                       std::int64_t begin, const float (&bias)[n], Tile& tile) {
    const bool there = begin + at.token < p.tokens;
    if (at.moves) {
      SAMESTATE_UNROLL
      for (int e = 0; e < n; ++e) {
        const float u = element(moved.u, e);
        const float delta = there ? softplus_for<Operand>(element(moved.dt, e) + bias[e]) : 0.0F;
        const int to = position(at.column + e, at.token);
        tile.delta[to] = delta;
        tile.input[to] = hold ? u : delta * u;
      }
    }
    if constexpr (kMatrixLoads == 1) {
      store_matrix(tile, moved.matrix, 0);
    } else {
      SAMESTATE_NO_UNROLL
      for (int i = 0; i < kMatrixLoads; ++i) store_matrix(tile, load_matrix(p, at, begin, i), i);
    }
  }

  /// Four tokens through a lane's states: y of token lane % 4, complete in every lane of that rest.
  static SAMESTATE_DEVICE float step(const Tile& tile, int channel, int lane, int token,
                                     const float (&A)[4 * quads], float (&h)[4 * quads]) {
    const Quad delta = load_quad(tile.delta + position(channel, token));
    const Quad input = load_quad(tile.input + position(channel, token));
    const float deltas[4] = {delta.x, delta.y, delta.z, delta.w};
    const float inputs[4] = {input.x, input.y, input.z, input.w};
    float y[4];
    SAMESTATE_UNROLL
    for (int t = 0; t < 4; ++t) {
      y[t] = 0.0F;
      SAMESTATE_UNROLL
      for (int q = 0; q < quads; ++q) {
        const int from = (token + t) * kPadded + (q * lanes + lane) * 4;
        const Quad B = load_quad(tile.B + from), C = load_quad(tile.C + from);
        const float Bs[4] = {B.x, B.y, B.z, B.w};
        const float Cs[4] = {C.x, C.y, C.z, C.w};
        SAMESTATE_UNROLL
        for (int s = 0; s < 4; ++s) {
          const float product = deltas[t] * A[q * 4 + s];
          float& state = h[q * 4 + s];
          if constexpr (hold) {
            const float factor = product == 0.0F ? deltas[t] : exponential_minus_1(product) / A[q * 4 + s];
            state = fused(exponential(product), state, factor * Bs[s] * inputs[t]);
          } else {
            state = fused(exponential2(product), state, inputs[t] * Bs[s]);
          }
          y[t] = fused(Cs[s], state, y[t]);
        }
      }
    }
    const bool odd = lane % 2 != 0, upper = lane % 4 >= 2;
    const float low = (odd ? y[1] : y[0]) + shuffle_xor(odd ? y[0] : y[1], 1);
    const float high = (odd ? y[3] : y[2]) + shuffle_xor(odd ? y[2] : y[3], 1);
    float sum = (upper ? high : low) + shuffle_xor(upper ? low : high, 2);
    SAMESTATE_UNROLL
    for (int mask = 4; mask < lanes; mask *= 2) sum += shuffle_xor(sum, mask);
    return sum;
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    auto& [tiles] = *reinterpret_cast<Shared*>(shared);
    const int groups = (p.D + kChannels - 1) / kChannels;
    Place at{};
    at.b = block_index() / groups;
    at.first = static_cast<int>(block_index() - at.b * groups) * kChannels;
    at.token = thread_index() / (kChannels / n);
    at.column = thread_index() % (kChannels / n) * n;
    at.moves = thread_index() < kMovers;
    at.vector = p.D % n == 0;
    at.matrix_vector = p.N % n == 0;
    Moved moved = load(p, at, 0);

    const int channel = thread_index() / lanes, lane = thread_index() % lanes;
    const bool mine = at.first + channel < p.D;
    const std::int64_t rates = mine ? static_cast<std::int64_t>(at.first + channel) * p.N : 0;
    const std::int64_t states = at.b * p.D * p.N + rates;
    const int N = mine ? p.N : 0;
    float A[4 * quads], h[4 * quads];
    SAMESTATE_UNROLL
    for (int q = 0; q < quads; ++q) {
      const int column = (q * lanes + lane) * 4;
      const auto log_rate = load_part<float, 4>(p.A_log + rates, column, N, p.N % 4 == 0);
      const auto state = load_part<float, 4>(p.state + states, column, N, p.N % 4 == 0);
      SAMESTATE_UNROLL
      for (int s = 0; s < 4; ++s) {
        // Decays are powers of 2 then, one instruction; the hold's factor needs the exponent itself.
        A[q * 4 + s] = -exponential(element(log_rate, s)) * (hold ? 1.0F : 1.4426950408889634F);
        h[q * 4 + s] = element(state, s);
      }
    }
    float bias[n], skip[n];  // of the channels that the thread moves
    SAMESTATE_UNROLL
    for (int e = 0; e < n; ++e) {
      const int d = at.first + at.column + e;
      bias[e] = d < p.D ? p.dt_bias[d] : 0.0F;
      skip[e] = d < p.D ? p.skip[d] : 0.0F;
    }
    if (p.tokens > 0) prepare(p, at, moved, 0, bias, tiles[0]);
    block_barrier();
    int which = 0;
    for (std::int64_t begin = 0; begin < p.tokens; begin += kTokens, which = 1 - which) {
      Tile& tile = tiles[which];
      const Elements u = moved.u, z = moved.z;
      const std::int64_t next = begin + kTokens;
      moved = load(p, at, next);
      const int count = p.tokens - begin < kTokens ? static_cast<int>(p.tokens - begin) : kTokens;
      SAMESTATE_UNROLL_BY(kUnrolled)
      for (int token = 0; token < count; token += 4) {
        const float y = step(tile, channel, lane, token, A, h);
        if (lane < 4) tile.y[position(channel, token + lane)] = y;
      }
      if (next < p.tokens) prepare(p, at, moved, next, bias, tiles[1 - which]);
      // All of y is there, and the next tile; the tile after that goes where all have read.
      block_barrier();
      if (!at.moves || at.token >= count) continue;
      float out[n];
      SAMESTATE_UNROLL
      for (int e = 0; e < n; ++e) {
        const float y = fused(skip[e], element(u, e), tile.y[position(at.column + e, at.token)]);
        out[e] = y * silu_for<Operand>(element(z, e));
      }
      store_part<Operand, n>(p.out + (at.b * p.tokens + begin + at.token) * p.D, at.first + at.column, p.D,
                             at.vector, out);
    }
    SAMESTATE_UNROLL
    for (int q = 0; q < quads; ++q) {
      const float last[4] = {h[q * 4], h[q * 4 + 1], h[q * 4 + 2], h[q * 4 + 3]};
      store_part<float, 4>(p.last_state + states, (q * lanes + lane) * 4, N, p.N % 4 == 0, last);
    }
  }

  static void launch(const Parameters& p, cudaStream_t stream) {
    const std::int64_t groups = (p.D + kChannels - 1) / kChannels;
    cuda::launch<SelectiveScan>(blocks_of(p.batch * groups, 1), sizeof(Shared), p, stream);
  }
};

/// Launches the grid that fits N, which is at most 256.
template <class Operand, bool hold>
void launch_selective_scan(const SelectiveScanParameters<Operand>& p, cudaStream_t stream) {
  if (p.N <= 16) return SelectiveScan<Operand, 32, 1, 4, hold>::launch(p, stream);
  if (p.N <= 64) return SelectiveScan<Operand, 32, 1, 16, hold>::launch(p, stream);
  SelectiveScan<Operand, 8, 2, 32, hold>::launch(p, stream);
}

}  // namespace samestate::cuda

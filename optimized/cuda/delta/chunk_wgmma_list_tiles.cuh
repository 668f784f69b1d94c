#pragma once

#include <algorithm>
#include <cstdint>

#include "optimized/cuda/delta/list_tiles.cuh"
#include "optimized/cuda/host/grid.cuh"
#include "optimized/cuda/units/bits.cuh"
#include "optimized/cuda/units/hopper.cuh"

/// Parts that the chunks of 64 tokens of a list share, whatever the value column, for products of a warpgroup (chunk_wgmma_list.cuh): their q
/// and k, normalised, and T, P and the gates, all rounded to bf16 once.
namespace samestate::cuda {

inline constexpr int kListChunk = 64;

/// The layout in global and in shared memory.
struct alignas(128) ListTile {
  Bf16 inverse[kTileBytes / 2];  ///< T = (I + A)^-1, swizzled
  Bf16 scores[kTileBytes / 2];   ///< P, swizzled
  float beta[kListChunk];
  float read[kListChunk];   ///< beta e^G
  float query[kListChunk];  ///< e^G
  float write[kListChunk];  ///< e^{G_C - G}
  float decay[4];           ///< e^{G_C}
};
/// The bytes of a tile that are copied to shared memory.
inline constexpr int kListTileBytes = 2 * kTileBytes + (4 * kListChunk + 4) * 4;

struct ListChunkParameters : ListChunks<kListChunk> {
  ListTile* tiles = nullptr;  ///< [B, H, capacity, N]
  Bf16* keys = nullptr;       ///< per tile [panels, 2, a tile]: 64 columns of k and of q, swizzled

  /// Elements of `keys` of a tile.
  [[nodiscard]] SAMESTATE_HOST_DEVICE int key_elements() const {
    return (rule.shape.width + kTileColumns - 1) / kTileColumns * kTileBytes;
  }
};

/// Returns the number of chunks of a list with `tokens` tokens.
SAMESTATE_DEVICE int list_chunks(int tokens) { return (tokens + kListChunk - 1) / kListChunk; }

/// Returns the number of chunks in a head's lists of the branches before e. It runs in one warp: there are no
/// more branches than lanes.
SAMESTATE_DEVICE int chunks_before(const RuleParameters<Bf16>& r, std::int64_t b, int h, int e) {
  const int lane = lane_index();
  const bool counts = lane < e;
  const int length = counts ? r.length[(b * r.shape.branches() + lane) * r.shape.heads + h] : 0;
  return static_cast<int>(warp_sum(static_cast<float>(list_chunks(length))));
}

/// T, P and the gates of a chunk, by a block.
struct ListTileBody {
  using Parameters = ListChunkParameters;
  static constexpr int kThreads = 256;
  static constexpr int kResidentBlocks = 4;
  static constexpr int kStride = kListChunk + 4;  ///< row stride of A, in floats
  static constexpr int kHalf = kListSquare;

  struct alignas(16) Gates {
    float decay[kThreads / 32][kListChunk];           ///< from a column to the row before a warp's rows
    float total[2][kListChunk], rest[2][kListChunk];  ///< G, their sum; of the half, of the chunk
    float beta[kListChunk];
    float q_factor[kListChunk], k_factor[kListChunk];
    std::int64_t key_row[kListChunk];
  };
  /// In the place of q and k, once they are multiplied.
  struct alignas(16) Inverse {
    float A[kListChunk][kStride];  ///< afterwards T
    float between[kHalf][kHalf + 4];
  };
  /// Where a chunk is.
  struct Chunk {
    std::int64_t list, b;
    int e, h, window, first, count;
  };
  static std::size_t shared_bytes(const DendriticShape& s) {
    return sizeof(Gates) + std::max(sizeof(Inverse), sizeof(Bf16) * 2 * kListChunk *
                                                         static_cast<std::size_t>(list_row_stride(s)));
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    const DendriticShape& s = p.rule.shape;
    auto rest = static_cast<std::uint32_t>(block_index());  // a grid's blocks are fewer than 2^31
    const auto next = [&rest](int extent) {
      const auto n = static_cast<std::uint32_t>(extent), index = rest % n;
      rest /= n;
      return static_cast<int>(index);
    };
    Chunk at;
    at.window = next(s.windows);
    const int number = next(static_cast<int>(p.capacity()));
    at.h = next(s.heads);
    at.b = rest;
    // The branch of a chunk: as many lists as end before it, a list a lane.
    const int lane = lane_index(), branches = s.branches();
    const int length = lane < branches ? p.rule.length[(at.b * branches + lane) * s.heads + at.h] : 0;
    auto behind = static_cast<float>(list_chunks(length));
    SAMESTATE_UNROLL
    for (int step = 1; step < 32; step *= 2) {
      const float before = shuffle(behind, lane >= step ? lane - step : lane);
      if (lane >= step) behind += before;
    }
    at.e = ones(ballot(lane < branches && behind <= static_cast<float>(number)));
    if (at.e == branches) return;
    const int of_list = at.e > 0 ? number - static_cast<int>(shuffle(behind, at.e - 1)) : number;
    at.list = (at.b * branches + at.e) * s.heads + at.h;
    at.first = of_list * kListChunk;
    const int left = p.rule.length[at.list] - at.first;
    at.count = left < kListChunk ? left : kListChunk;
    make_tile(p.rule, at, p.tiles[block_index()], p.keys + block_index() * p.key_elements(), shared);
  }

  static SAMESTATE_DEVICE void make_tile(const RuleParameters<Bf16>& r, const Chunk& at, ListTile& tile,
                                         Bf16* keys, unsigned char* shared) {
    Gates& gates = *reinterpret_cast<Gates*>(shared);
    Bf16* const q = reinterpret_cast<Bf16*>(shared + sizeof(Gates));
    Bf16* const k = q + kListChunk * list_row_stride(r.shape);
    if (warp_index() < 2) read_gates(r, at, gates);
    block_barrier();
    stage_rows(r, at, gates, q, k);
    if (thread_index() < kListChunk) store_gates(gates, tile);  // while rows are copied
    copies_wait<0>();
    normalise(r.shape, k, gates.k_factor, keys);
    normalise(r.shape, q, gates.q_factor, keys + kTileBytes / 2);
    block_barrier();
    auto& inverse = *reinterpret_cast<Inverse*>(shared + sizeof(Gates));
    multiply(r.shape, q, k, gates, inverse, tile);
    block_barrier();
    if (warp_index() < 2) invert(inverse);
    block_barrier();
    merge(inverse);
    block_barrier();
    store_inverse(inverse, tile);
  }

  /// A token a lane, half of the chunk a warp. Where there is none, beta is 0: it writes nothing.
  static SAMESTATE_DEVICE void read_gates(const RuleParameters<Bf16>& r, const Chunk& at, Gates& gates) {
    const DendriticShape& s = r.shape;
    const int i = thread_index();
    float g = 0.0F, beta = 0.0F, q_factor = 0.0F, k_factor = 0.0F;
    std::int64_t key_row = 0;
    if (i < at.count) {
      const ListEntry entry = r.entries[at.list * s.tokens + at.first + i];
      const std::int64_t token = at.b * s.tokens + entry.token;
      const int m = at.e * s.heads + at.h;
      key_row = r.key_row(token, at.h / r.group, entry.slot);
      if (r.mask == nullptr || r.mask[token] != 0.0F) {
        const std::int64_t gate = token * s.branches() * s.heads + m;
        beta = logistic(widen(r.b[gate]));
        g = -exponential(r.A_log[m]) * softplus(widen(r.a[gate]) + r.dt_bias[m]);
      }
      q_factor = r.q_factor[key_row * s.windows + at.window];
      k_factor = r.k_factor[key_row * s.windows + at.window];
    }
    float total = g, rest = 0.0F;
    sum_gates(total, rest);
    gates.total[0][i] = total;
    gates.rest[0][i] = rest;
    gates.beta[i] = beta;
    gates.q_factor[i] = q_factor;
    gates.k_factor[i] = k_factor;
    gates.key_row[i] = key_row;
  }

  /// A token a thread.
  static SAMESTATE_DEVICE void store_gates(Gates& gates, ListTile& tile) {
    const int i = thread_index();
    float total = gates.total[0][i], rest = gates.rest[0][i];
    const float half = gates.total[0][kHalf - 1], half_rest = gates.rest[0][kHalf - 1];
    if (i >= kHalf) add_to_sum(total, rest, half, half_rest);
    float whole = gates.total[0][kListChunk - 1], whole_rest = gates.rest[0][kListChunk - 1];
    add_to_sum(whole, whole_rest, half, half_rest);
    gates.total[1][i] = total;
    gates.rest[1][i] = rest;
    const float decay = exponential(total + rest);
    tile.beta[i] = gates.beta[i];
    tile.read[i] = gates.beta[i] * decay;
    tile.query[i] = decay;
    tile.write[i] = exponential((whole - total) + (whole_rest - rest));
    if (i == kListChunk - 1) tile.decay[0] = decay;
  }

  /// Eight threads a token, pieces of eight columns: what a thread copies it normalises.
  static SAMESTATE_DEVICE void stage_rows(const RuleParameters<Bf16>& r, const Chunk& at, const Gates& gates,
                                          Bf16* q, Bf16* k) {
    const DendriticShape& s = r.shape;
    const int columns = (s.width + 15) / 16 * 16;
    constexpr int kLanes = 8;
    SAMESTATE_NO_UNROLL
    for (int t = thread_index() / kLanes; t < kListChunk; t += kThreads / kLanes) {
      const std::int64_t key = gates.key_row[t] * s.channels + at.window * s.stride;
      SAMESTATE_NO_UNROLL
      for (int c = thread_index() % kLanes * 8; c < columns; c += 8 * kLanes) {
        const int exist = t < at.count ? s.width - c : 0;
        Bf16 *const to_q = q + t * list_row_stride(s) + c, *const to_k = k + t * list_row_stride(s) + c;
        stage_keys(r, key + c, exist, to_q, to_k);
      }
    }
    copies_commit();
  }

  /// Rows by their factors, rounded, in shared memory and in tiles; what stage_rows() of the same thread brought.
  static SAMESTATE_DEVICE void normalise(const DendriticShape& s, Bf16* rows, const float* factors,
                                         Bf16* keys) {
    constexpr int kLanes = 8;
    const int columns = s.width <= 64 ? 64 : s.width <= 128 ? 128 : 160;  // that products read
    SAMESTATE_NO_UNROLL
    for (int t = thread_index() / kLanes; t < kListChunk; t += kThreads / kLanes) {
      const float factor = factors[t];
      SAMESTATE_NO_UNROLL
      for (int c = thread_index() % kLanes * 8; c < columns; c += 8 * kLanes) {
        Vector<Bf16, 8> of{};
        if (c < s.width) {
          auto* const row = reinterpret_cast<Vector<Bf16, 8>*>(rows + t * list_row_stride(s) + c);
          const Vector<Bf16, 8> raw = *row;
          float x[8];
          SAMESTATE_UNROLL
          for (int i = 0; i < 8; ++i) x[i] = element(raw, i) * factor;
          of = narrowed<Bf16>(x);
          *row = of;
        }
        auto* const to = reinterpret_cast<unsigned char*>(keys + c / kTileColumns * kTileBytes);
        *reinterpret_cast<Vector<Bf16, 8>*>(to + swizzled(t, 2 * (c % kTileColumns))) = of;
      }
    }
  }

  /// 16 rows of A by each of the first four warps, of P by the others.
  static SAMESTATE_DEVICE void multiply(const DendriticShape& s, const Bf16* q, const Bf16* k, Gates& gates,
                                        Inverse& inverse, ListTile& tile) {
    const int lane = lane_index(), warp = warp_index() % 4, stride = list_row_stride(s);
    const bool is_P = warp_index() >= 4;
    float sums[8][4] = {};
    SAMESTATE_NO_UNROLL
    for (int c = 0; c < s.width; c += 16) {
      std::uint32_t a[4];
      load_matrices<false>(a, (is_P ? q : k) + (16 * warp + lane % 16) * stride + c + lane / 16 * 8);
      SAMESTATE_UNROLL
      for (int j = 0; j < 4; ++j) {
        if (j > warp) continue;
        std::uint32_t of_k[4];
        load_matrices<false>(of_k, k + (16 * j + lane % 8 + lane / 16 * 8) * stride + c + lane / 8 % 2 * 8);
        multiply_bf16(sums[2 * j], a, of_k[0], of_k[1]);
        multiply_bf16(sums[2 * j + 1], a, of_k[2], of_k[3]);
      }
    }
    block_barrier();  // q and k have been read
    weigh(sums, is_P, gates, inverse, tile);
  }

  /// Decays between a warp's rows and columns of blocks before them are two factors, neither above 1: from the column to the row
  /// before the block, and from there.
  static SAMESTATE_DEVICE void weigh(const float (&sums)[8][4], bool is_P, Gates& gates, Inverse& inverse,
                                     ListTile& tile) {
    const int lane = lane_index(), warp = warp_index() % 4;
    const float *const total = gates.total[1], *const rest = gates.rest[1];
    const int before = 16 * warp - 1;
    float* const decay = gates.decay[warp_index()];
    SAMESTATE_UNROLL
    for (int column = lane; column < kListChunk; column += 32) {
      if (column <= before)
        decay[column] = exponential((total[before] - total[column]) + (rest[before] - rest[column]));
    }
    warp_barrier();
    SAMESTATE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = 16 * warp + lane / 4 + 8 * half;
      const float of_row = total[row], rest_of_row = rest[row], factor = is_P ? 1.0F : gates.beta[row];
      const float to_row =
          warp > 0 ? factor * exponential((of_row - total[before]) + (rest_of_row - rest[before])) : 0.0F;
      SAMESTATE_UNROLL
      for (int j = 0; j < 8; ++j) {
        const int column = 8 * j + lane % 4 * 2;
        float x = 0.0F, y = 0.0F;
        if (j / 2 < warp) {
          const Pair from = load_pair(decay + column);
          x = sums[j][2 * half] * to_row * from.x;
          y = sums[j][2 * half + 1] * to_row * from.y;
        } else if (j / 2 == warp) {
          const int last = is_P ? row : row - 1;
          // Above the diagonal an exponential may overflow: selected, not multiplied.
          if (column <= last)
            x = sums[j][2 * half] * factor *
                exponential((of_row - total[column]) + (rest_of_row - rest[column]));
          if (column + 1 <= last)
            y = sums[j][2 * half + 1] * factor *
                exponential((of_row - total[column + 1]) + (rest_of_row - rest[column + 1]));
        }
        if (is_P) {
          auto* const to = reinterpret_cast<unsigned char*>(tile.scores) + swizzled(row, 2 * column);
          *reinterpret_cast<Vector<Bf16, 2>*>(to) = {{narrow_pair(x, y)}};
        } else if (j / 2 <= warp) {
          store_pair(&inverse.A[row][column], x, y);
        }
      }
    }
  }

  /// The two blocks of 32 x 32 on A's diagonal <- their inverses in I + A: forward substitution, a column a lane, a block a warp.
  static SAMESTATE_DEVICE void invert(Inverse& inverse) {
    const int column = lane_index(), first = kHalf * warp_index();
    float x[kHalf];
    substitute(
        x, [&](int i, int j) { return load_quad(&inverse.A[first + i][first + j]); }, [](int, float) {});
    warp_barrier();  // every lane has read A
    SAMESTATE_UNROLL
    for (int i = 0; i < kHalf; ++i) inverse.A[first + i][first + column] = x[i];
  }

  /// The block below them, T_10 = -T_11 A_10 T_00: four elements of a row a thread.
  static SAMESTATE_DEVICE void merge(Inverse& inverse) {
    const int row = thread_index() / 8, column = thread_index() % 8 * 4;
    float x[4] = {};
    SAMESTATE_UNROLL_BY(8)
    for (int j = 0; j < kHalf; ++j) add_row(x, inverse.A[kHalf + row][j], &inverse.A[j][column]);
    SAMESTATE_UNROLL
    for (int i = 0; i < 4; ++i) inverse.between[row][column + i] = x[i];
    block_barrier();
    float y[4] = {};
    SAMESTATE_UNROLL_BY(8)
    for (int j = 0; j < kHalf; ++j)
      add_row(y, -inverse.A[kHalf + row][kHalf + j], &inverse.between[j][column]);
    SAMESTATE_UNROLL
    for (int i = 0; i < 4; ++i) inverse.A[kHalf + row][column + i] = y[i];
  }
  static SAMESTATE_DEVICE void add_row(float (&x)[4], float a, const float* row) {
    const Quad of = load_quad(row);
    x[0] = fused(a, of.x, x[0]), x[1] = fused(a, of.y, x[1]);
    x[2] = fused(a, of.z, x[2]), x[3] = fused(a, of.w, x[3]);
  }

  /// T rounded, a quarter of a row a thread.
  static SAMESTATE_DEVICE void store_inverse(const Inverse& inverse, ListTile& tile) {
    const int row = thread_index() / 4, first = thread_index() % 4 * 16;
    SAMESTATE_UNROLL
    for (int i = 0; i < 16; i += 8) {
      const int c = first + i;
      Quad low{}, high{};  // zeros above the two blocks on the diagonal
      if (row >= kHalf || c < kHalf)
        low = load_quad(&inverse.A[row][c]), high = load_quad(&inverse.A[row][c + 4]);
      auto* const to = reinterpret_cast<unsigned char*>(tile.inverse) + swizzled(row, 2 * c);
      *reinterpret_cast<Vector<Bf16, 8>*>(to) = {{narrow_pair(low.x, low.y), narrow_pair(low.z, low.w),
                                                  narrow_pair(high.x, high.y), narrow_pair(high.z, high.w)}};
    }
  }
};

}  // namespace samestate::cuda

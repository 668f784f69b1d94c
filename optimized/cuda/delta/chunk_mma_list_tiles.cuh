#pragma once

#include <cstdint>

#include "optimized/cuda/delta/list_tiles.cuh"
#include "optimized/cuda/host/grid.cuh"
#include "optimized/cuda/units/row_parts.cuh"
#include "optimized/cuda/units/state_products.cuh"

/// The gated delta rule of the dendritic layer in chunks of 32 tokens of a list (EQUATIONS 5.5), bf16 operands, on tensor cores:
///   (I + A) V' = beta (V - e^G K S),  O = scale e^G Q S + P V',  S <- e^{G_C} S + K^T (e^{G_C - G} V').
/// The rows of q and k are multiplied as they were stored and their factors go into the sums; whatever else is a factor is fp32,
/// as the contract keeps it: three numbers of bf16 whose sum it is. Products of parts below 2^-24 of the whole are left out.
namespace samestate::cuda {

/// The data that the chunks of one window share, whatever the value column.
struct ChunkTile {
  Bf16 inverse[kParts][kStateTokens][kStateTokens];  ///< (I + A)^-1
  Bf16 scores[kParts][kStateTokens][kStateTokens];   ///< P
  float beta[kStateTokens];
  float read[kStateTokens];   ///< beta e^G and the factor of k
  float query[kStateTokens];  ///< scale e^G and the factor of q
  float write[kStateTokens];  ///< e^{G_C - G} and the factor of k
  float decay[4];             ///< e^{G_C}
};

struct ChunkParameters : ListChunks<kStateTokens> {
  ChunkTile* tiles = nullptr;  ///< [B, H, capacity, N]
};

/// The chunks of a list come after those of the branches before it.
SAMESTATE_DEVICE std::int64_t first_chunk(const RuleParameters<Bf16>& p, std::int64_t b, int e, int h) {
  std::int64_t chunks = 0;
  for (int before = 0; before < e; ++before)
    chunks +=
        (p.length[(b * p.shape.branches() + before) * p.shape.heads + h] + kStateTokens - 1) / kStateTokens;
  return chunks;
}

/// (I + A)^-1, P and the gates of a chunk, by a block.
struct ChunkTileBody {
  using Parameters = ChunkParameters;
  static constexpr int kThreads = 128;
  static constexpr int kStride = kStateTokens + 4;  ///< row stride of A, in floats

  struct alignas(16) Gates {
    float A[kStateTokens][kStride];
    float total[kStateTokens], rest[kStateTokens];  ///< G, their sum
    float beta[kStateTokens];
    float q_factor[kStateTokens], k_factor[kStateTokens];
    std::int64_t key_row[kStateTokens];
  };
  static std::size_t shared_bytes(const DendriticShape& s) {
    return sizeof(Gates) + sizeof(Bf16) * 2 * kStateTokens * static_cast<std::size_t>(list_row_stride(s));
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    const DendriticShape& s = p.rule.shape;
    for (std::int64_t item = block_index(); item < p.tile_count(); item += grid_blocks()) {
      const auto window = static_cast<int>(item % s.windows);
      const std::int64_t at = item / s.windows % p.capacity(), of = item / s.windows / p.capacity();
      const auto h = static_cast<int>(of % s.heads);
      const std::int64_t b = of / s.heads;
      std::int64_t before = 0;
      for (int e = 0; e < s.branches(); ++e) {
        const std::int64_t list = (b * s.branches() + e) * s.heads + h;
        const int length = p.rule.length[list];
        const std::int64_t chunks = (length + kStateTokens - 1) / kStateTokens;
        if (at < before + chunks) {
          const auto first = static_cast<int>(at - before) * kStateTokens;
          const int count = length - first < kStateTokens ? length - first : kStateTokens;
          make_tile(p, list, b, e, h, window, first, count, p.tiles[item], shared);
          break;
        }
        before += chunks;
      }
    }
  }

  static SAMESTATE_DEVICE void make_tile(const Parameters& p, std::int64_t list, std::int64_t b, int e, int h,
                                         int window, int first, int count, ChunkTile& tile,
                                         unsigned char* shared) {
    const RuleParameters<Bf16>& r = p.rule;
    const DendriticShape& s = r.shape;
    Gates& gates = *reinterpret_cast<Gates*>(shared);
    Bf16* const q = reinterpret_cast<Bf16*>(shared + sizeof(Gates));
    Bf16* const k = q + kStateTokens * list_row_stride(s);
    if (warp_index() == 0)
      stage_gates(r, r.entries + list * s.tokens + first, b, e * s.heads + h, h, window, count, gates, tile);
    block_barrier();
    const int columns = (s.width + 15) / 16 * 16;
    const int t = thread_index() / 4;
    const std::int64_t key = gates.key_row[t] * s.channels + window * s.stride;
    for (int c = thread_index() % 4 * 8; c < columns; c += 32) {
      const int exist = t < count ? s.width - c : 0;
      Bf16 *const to_q = q + t * list_row_stride(s) + c, *const to_k = k + t * list_row_stride(s) + c;
      stage_keys(r, key + c, exist, to_q, to_k);
    }
    copies_commit();
    copies_wait<0>();
    block_barrier();
    multiply(s, q, k, gates, tile);
    block_barrier();
    if (warp_index() == 0) invert(gates, tile);
    block_barrier();
  }

  /// A token a lane. Where there is none, beta is 0: it writes nothing.
  static SAMESTATE_DEVICE void stage_gates(const RuleParameters<Bf16>& r, const ListEntry* entries,
                                           std::int64_t b, int m, int h, int window, int count, Gates& gates,
                                           ChunkTile& tile) {
    const DendriticShape& s = r.shape;
    const int i = lane_index();
    float g = 0.0F, beta = 0.0F, q_factor = 0.0F, k_factor = 0.0F;
    std::int64_t key_row = 0;
    if (i < count) {
      const ListEntry entry = entries[i];
      const std::int64_t token = b * s.tokens + entry.token;
      key_row = r.key_row(token, h / r.group, entry.slot);
      if (r.mask == nullptr || r.mask[token] != 0.0F) {
        const std::int64_t gate = token * s.branches() * s.heads + m;
        beta = logistic(widen(r.b[gate]));
        g = -exponential(r.A_log[m]) * softplus(widen(r.a[gate]) + r.dt_bias[m]);
      }
      q_factor = r.q_factor[key_row * s.windows + window] * r.scale;
      k_factor = r.k_factor[key_row * s.windows + window];
    }
    float total = g, rest = 0.0F;
    sum_gates(total, rest);
    const float whole = shuffle(total, kStateTokens - 1), rest_of_whole = shuffle(rest, kStateTokens - 1);
    gates.total[i] = total;
    gates.rest[i] = rest;
    gates.beta[i] = beta;
    gates.q_factor[i] = q_factor;
    gates.k_factor[i] = k_factor;
    gates.key_row[i] = key_row;
    tile.beta[i] = beta;
    const float decay = exponential(total + rest);
    tile.read[i] = beta * decay * k_factor;
    tile.query[i] = q_factor * decay;
    tile.write[i] = exponential((whole - total) + (rest_of_whole - rest)) * k_factor;
    if (i == kStateTokens - 1) tile.decay[0] = decay;
  }

  /// A of 16 rows by warps 0 and 1, P by warps 2 and 3.
  static SAMESTATE_DEVICE void multiply(const DendriticShape& s, const Bf16* q, const Bf16* k, Gates& gates,
                                        ChunkTile& tile) {
    const int lane = lane_index(), first = warp_index() % 2 * 16;
    const bool is_P = warp_index() >= 2;
    float sum[4][4] = {};
    SAMESTATE_NO_UNROLL
    for (int c = 0; c < s.width; c += 16) {
      std::uint32_t a[4];
      load_matrices<false>(a, (is_P ? q : k) + (first + lane % 16) * list_row_stride(s) + c + lane / 16 * 8);
      SAMESTATE_UNROLL
      for (int j = 0; j < 2; ++j) {
        std::uint32_t of_k[4];
        load_matrices<false>(
            of_k, k + (16 * j + lane % 8 + lane / 16 * 8) * list_row_stride(s) + c + lane / 8 % 2 * 8);
        multiply_bf16(sum[2 * j], a, of_k[0], of_k[1]);
        multiply_bf16(sum[2 * j + 1], a, of_k[2], of_k[3]);
      }
    }
    SAMESTATE_UNROLL
    for (int j = 0; j < 4; ++j) {
      SAMESTATE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int row = first + lane / 4 + 8 * half, column = 8 * j + lane % 4 * 2;
        float x[2];
        SAMESTATE_UNROLL
        for (int i = 0; i < 2; ++i) {
          const bool wanted = column + i < row || (is_P && column + i == row);
          const float factor = is_P ? gates.q_factor[row] : gates.beta[row] * gates.k_factor[row];
          x[i] = wanted ? sum[j][2 * half + i] * factor * gates.k_factor[column + i] *
                              exponential((gates.total[row] - gates.total[column + i]) +
                                          (gates.rest[row] - gates.rest[column + i]))
                        : 0.0F;
        }
        if (is_P) {
          std::uint32_t parts[kParts];
          split_pair(x[0], x[1], parts);
          SAMESTATE_UNROLL
          for (int part = 0; part < kParts; ++part) {
            Bf16* const to = tile.scores[part][row] + column;
            *reinterpret_cast<Vector<Bf16, 2>*>(to) = {{parts[part]}};
          }
        } else {
          store_pair(&gates.A[row][column], x[0], x[1]);
        }
      }
    }
  }

  /// Forward substitution, a column a lane.
  static SAMESTATE_DEVICE void invert(const Gates& gates, ChunkTile& tile) {
    const int column = lane_index();
    float x[kListSquare];
    const auto four = [&](int i, int j) { return load_quad(&gates.A[i][j]); };
    substitute(x, four, [&](int i, float left) {
      SAMESTATE_UNROLL
      for (int part = 0; part < kParts; ++part) {
        const Bf16 kept = narrow<Bf16>(left);
        tile.inverse[part][i][column] = kept;
        left -= widen(kept);
      }
    });
  }
};

}  // namespace samestate::cuda

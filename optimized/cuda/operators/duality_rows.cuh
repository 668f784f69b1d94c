#pragma once

#include <cstdint>

#include "optimized/cuda/operators/duality.cuh"

/// State space duality in fp32 by FMA: tiles in shared memory, the state too.
namespace samestate::cuda {

struct DualityRows {
  using Parameters = DualityParameters<float>;
  static constexpr int kThreads = 256;
  static constexpr int kT = kDualityTokens, kP = kDualityColumns;
  static constexpr int kRow = kP + 4, kScoreRow = kT + 4;

  struct alignas(16) Shared {
    DualityTokens tokens;
    float x[kT][kRow];
    float scores[kT][kScoreRow];
  };
  /// Of a row of N, in floats: eight rows lie in different banks where N is a multiple of 32.
  static SAMESTATE_HOST_DEVICE int row_of(const Parameters& p) { return (p.N + 3) / 4 * 4 + 4; }
  static std::size_t shared_bytes(const Parameters& p) {
    return sizeof(Shared) + sizeof(float) * (2 * kT + kP) * static_cast<std::size_t>(row_of(p));
  }

  /// Rows of `width` columns, zeros beyond those that exist.
  static SAMESTATE_DEVICE void stage_rows(float* to, int stride, const float* from, std::int64_t step,
                                          int rows, int columns, int width, bool in_pieces) {
    const int pieces = width / 4;
    for (int i = thread_index(); i < kT * pieces; i += kThreads) {
      const int row = i / pieces, column = i % pieces * 4;
      float* const at = to + row * stride + column;
      if (in_pieces && row < rows && column < columns) {
        copy_async_16(at, from + row * step + column);
        continue;
      }
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e)
        at[e] = row < rows && column + e < columns ? from[row * step + column + e] : 0.0F;
    }
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* memory) {
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const int stride = row_of(p), width = stride - 4;
    float* const C = reinterpret_cast<float*>(memory + sizeof(Shared));
    float* const B = C + kT * stride;
    float* const S = B + kT * stride;
    const DualityPlace at = DualityPlace::of(p);
    const int channels = p.P - at.first < kP ? p.P - at.first : kP;
    const std::int64_t states = ((at.b * p.H + at.h) * p.P + at.first) * p.N;
    for (int i = thread_index(); i < kP * width; i += kThreads) {
      const int row = i / width, n = i % width;
      S[row * stride + n] = row < channels && n < p.N ? p.state[states + row * p.N + n] : 0.0F;
    }
    float y[4][2] = {};
    const bool in_pieces = (p.P | p.N) % 4 == 0;
    for (DualityTile tile = DualityTile::first(p); tile.exists(p); tile.advance(p)) {
      block_barrier();  // the tile before has been read
      const std::int64_t i = at.b * p.tokens + tile.i, j = at.b * p.tokens + tile.j;
      const std::int64_t of_N = static_cast<std::int64_t>(p.G) * p.N,
                         of_P = static_cast<std::int64_t>(p.H) * p.P;
      if (tile.opens())
        stage_rows(C, stride, p.C + i * of_N + at.group * p.N, of_N, tile.count_i(), p.N, width, in_pieces);
      stage_rows(B, stride, p.B + j * of_N + at.group * p.N, of_N, tile.count_j(), p.N, width, in_pieces);
      stage_rows(&shared.x[0][0], kRow, p.x + j * of_P + at.h * p.P + at.first, of_P, tile.count_j(),
                 channels, kP, in_pieces);
      shared.tokens.stage(p, at, tile);
      copies_commit();
      copies_wait<0>();
      block_barrier();
      shared.tokens.make_factors(tile);
      make_scores(shared, tile, C, B, stride);
      if (tile.opens()) read_state(shared, C, S, stride, y);
      block_barrier();
      mix_tokens(shared, tile, y);
      if (tile.writes()) write_state(shared, tile, B, S, stride);
      if (tile.diagonal()) store_rows(p, at, shared, tile, channels, y);
    }
    block_barrier();
    for (int i = thread_index(); i < channels * p.N; i += kThreads) {
      const int row = i / p.N, n = i - row * p.N;
      p.last_state[states + i] = S[row * stride + n];
    }
  }

  static SAMESTATE_DEVICE float add_products(const Quad& a, const Quad& b, float sum) {
    sum = fused(a.x, b.x, sum);
    sum = fused(a.y, b.y, sum);
    sum = fused(a.z, b.z, sum);
    return fused(a.w, b.w, sum);
  }

  /// A row and every eighth column a thread.
  static SAMESTATE_DEVICE void make_scores(Shared& shared, const DualityTile& tile, const float* C,
                                           const float* B, int stride) {
    const int row = thread_index() / 8, column = thread_index() % 8;
    float sums[4] = {};
    if (row < tile.count_i()) {
      for (int n = 0; n < stride - 4; n += 4) {
        const Quad c = load_quad(C + row * stride + n);
        SAMESTATE_UNROLL
        for (int k = 0; k < 4; ++k)
          sums[k] = add_products(c, load_quad(B + (column + 8 * k) * stride + n), sums[k]);
      }
    }
    SAMESTATE_UNROLL
    for (int k = 0; k < 4; ++k) {
      const float factor = shared.tokens.factor(tile, row, column + 8 * k);
      shared.scores[row][column + 8 * k] = factor == 0.0F ? 0.0F : sums[k] * factor;
    }
  }

  /// y = C S^T: four tokens a warp, two channels a lane. Its factor e^G is applied where y is first used.
  static SAMESTATE_DEVICE void read_state(const Shared&, const float* C, const float* S, int stride,
                                          float (&y)[4][2]) {
    const int row = 4 * warp_index(), lane = lane_index();
    SAMESTATE_UNROLL
    for (auto& of_token : y) of_token[0] = of_token[1] = 0.0F;
    for (int n = 0; n < stride - 4; n += 4) {
      const Quad low = load_quad(S + lane * stride + n), high = load_quad(S + (lane + 32) * stride + n);
      SAMESTATE_UNROLL
      for (int t = 0; t < 4; ++t) {
        const Quad c = load_quad(C + (row + t) * stride + n);
        y[t][0] = add_products(c, low, y[t][0]);
        y[t][1] = add_products(c, high, y[t][1]);
      }
    }
  }

  static SAMESTATE_DEVICE void mix_tokens(const Shared& shared, const DualityTile& tile, float (&y)[4][2]) {
    const int row = 4 * warp_index(), lane = lane_index();
    if (tile.opens()) {
      SAMESTATE_UNROLL
      for (int t = 0; t < 4; ++t) {
        y[t][0] *= shared.tokens.from_start[row + t];
        y[t][1] *= shared.tokens.from_start[row + t];
      }
    }
    const int end = tile.diagonal() ? row + 4 : kT;
    for (int j = 0; j < end; j += 4) {
      Quad scores[4];
      SAMESTATE_UNROLL
      for (int t = 0; t < 4; ++t) scores[t] = load_quad(&shared.scores[row + t][j]);
      SAMESTATE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int p = lane + 32 * half;
        const Quad x = {shared.x[j][p], shared.x[j + 1][p], shared.x[j + 2][p], shared.x[j + 3][p]};
        SAMESTATE_UNROLL
        for (int t = 0; t < 4; ++t) y[t][half] = add_products(scores[t], x, y[t][half]);
      }
    }
  }

  /// Eight channels a warp, four states a lane.
  static SAMESTATE_DEVICE void write_state(const Shared& shared, const DualityTile& tile, const float* B,
                                           float* S, int stride) {
    const int first = 8 * warp_index();
    const float kept = tile.opens() ? shared.tokens.from_start[tile.count_i() - 1] : 1.0F;
    for (int n = 4 * lane_index(); n < stride - 4; n += 128) {
      float sums[8][4] = {};
      SAMESTATE_NO_UNROLL
      for (int j = 0; j < tile.count_j(); ++j) {
        const float weight = shared.tokens.weight[j];
        const Quad b = load_quad(B + j * stride + n);
        const Quad low = load_quad(&shared.x[j][first]), high = load_quad(&shared.x[j][first + 4]);
        const float x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        SAMESTATE_UNROLL
        for (int c = 0; c < 8; ++c) {
          const float written = weight * x[c];
          sums[c][0] = fused(written, b.x, sums[c][0]);
          sums[c][1] = fused(written, b.y, sums[c][1]);
          sums[c][2] = fused(written, b.z, sums[c][2]);
          sums[c][3] = fused(written, b.w, sums[c][3]);
        }
      }
      SAMESTATE_UNROLL
      for (int c = 0; c < 8; ++c) {
        float* const to = S + (first + c) * stride + n;
        const Quad s = load_quad(to);
        const float values[4] = {fused(kept, s.x, sums[c][0]), fused(kept, s.y, sums[c][1]),
                                 fused(kept, s.z, sums[c][2]), fused(kept, s.w, sums[c][3])};
        *reinterpret_cast<Vector<float, 4>*>(to) = narrowed<float>(values);
      }
    }
  }

  static SAMESTATE_DEVICE void store_rows(const Parameters& p, const DualityPlace& at, const Shared& shared,
                                          const DualityTile& tile, int channels, const float (&y)[4][2]) {
    const float skip = p.skip[at.h];
    SAMESTATE_UNROLL
    for (int t = 0; t < 4; ++t) {
      const int row = 4 * warp_index() + t;
      if (row >= tile.count_i()) continue;
      float* const to = p.y + ((at.b * p.tokens + tile.i + row) * p.H + at.h) * p.P + at.first;
      SAMESTATE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int c = lane_index() + 32 * half;
        if (c < channels) to[c] = fused(skip, shared.x[row][c], y[t][half]);
      }
    }
  }
};

}  // namespace samestate::cuda

#pragma once

#include <cstdint>

#include "optimized/cuda/scan/duality.cuh"

/// State space duality in fp32 by FMA, in chunks of 16 tokens: C_i . B_j once for all heads of a group; then a head's channels a block,
/// whose state lies in registers.
namespace samestate::cuda {

inline constexpr int kRowTokens = 16;    ///< tokens of a chunk
inline constexpr int kRowChannels = 32;  ///< channels of a block

/// `columns` of a row from `column` on, four: zeros where there are none.
SAMESTATE_DEVICE void stage_quad(float* to, const float* row, int column, int columns, bool in_pieces) {
  if (in_pieces && column < columns) {
    copy_async_16(to, row + column);
    return;
  }
  SAMESTATE_UNROLL
  for (int e = 0; e < 4; ++e) to[e] = !in_pieces && column + e < columns ? row[column + e] : 0.0F;
}

SAMESTATE_DEVICE float add_products(const Quad& a, const Quad& b, float sum) {
  return fused(a.w, b.w, fused(a.z, b.z, fused(a.y, b.y, fused(a.x, b.x, sum))));
}

/// C_i . B_j of a chunk and group a block, zeros where j > i: products[batch, G, chunks, i, j].
struct DualityProducts {
  using Parameters = DualityParameters<float>;
  static constexpr int kThreads = 128, kT = kRowTokens;

  /// Returns the stride of the rows in shared memory: eight rows are in different banks if N is a multiple of
  /// 32.
  static SAMESTATE_HOST_DEVICE int row_of(const Parameters& p) { return (p.N + 3) / 4 * 4 + 4; }
  static void launch(const Parameters& p, cudaStream_t stream) {
    cuda::launch<DualityProducts>(blocks_of(p.batch * p.G * p.chunks(), 1),
                                  sizeof(float) * 2 * kT * static_cast<std::size_t>(row_of(p)), p, stream);
  }
  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* memory) {
    const std::int64_t of = quotient(block_index(), p.chunks()), b = quotient(of, p.G);
    const std::int64_t begin = (block_index() - of * p.chunks()) * kT;
    const int group = static_cast<int>(of - b * p.G), stride = row_of(p), quads = stride / 4 - 1;
    const int n = p.tokens - begin < kT ? static_cast<int>(p.tokens - begin) : kT;
    float* const C = reinterpret_cast<float*>(memory);
    float* const B = C + kT * stride;
    for (int i = thread_index(); i < kT * quads; i += kThreads) {
      const int t = i / quads, column = (i - t * quads) * 4;
      const std::int64_t row = ((b * p.tokens + begin + t) * p.G + group) * p.N;
      stage_quad(C + t * stride + column, p.C + row, column, t < n ? p.N : 0, p.N % 4 == 0);
      stage_quad(B + t * stride + column, p.B + row, column, t < n ? p.N : 0, p.N % 4 == 0);
    }
    copies_commit();
    copies_wait<0>();
    block_barrier();
    const int i = thread_index() / 8, j = thread_index() % 8;
    float sums[2] = {};
    for (int q = 0; q < quads; ++q) {
      const Quad c = load_quad(C + i * stride + 4 * q);
      sums[0] = add_products(c, load_quad(B + j * stride + 4 * q), sums[0]);
      sums[1] = add_products(c, load_quad(B + (j + 8) * stride + 4 * q), sums[1]);
    }
    float* const to = p.products + (block_index() * kT + i) * kT + j;
    to[0] = j <= i ? sums[0] : 0.0F;
    to[8] = j + 8 <= i ? sums[1] : 0.0F;
  }
};

/// A head's 32 channels by four warps through all chunks, copied to shared memory one ahead. N at most kN. A lane holds S of four
/// channels and of every 64 states four adjacent ones, the 16 lanes of a half warp those of four channels.
template <int kN>
struct DualityRows {
  using Parameters = DualityParameters<float>;
  static constexpr int kThreads = 128;
  static constexpr int kResidentBlocks = kN <= 128 ? 3 : 2;
  static constexpr int kT = kRowTokens, kP = kRowChannels, kQuads = kN / 64;
  using State = float[4][kQuads][4];

  struct alignas(16) Stage {
    float steps[kT][4];  ///< DualityStep
    float C[kT][kN], B[kT][kN];
    float x[kT][kP];
    float scores[kT][kT + 4];  ///< C_i . B_j, then what x_j is multiplied by
  };
  struct alignas(16) Shared {
    Stage stages[2];
    float written[kT][kP];  ///< Delta_j e^{G_C - G_j} x_j
    float from_start[kT];   ///< e^{G_i}
  };

  struct Place {
    std::int64_t of = 0;   ///< sequence and head
    std::int64_t row = 0;  ///< the row of the first token in x, B and C
    std::int64_t products = 0;
    int h = 0, group = 0, channel = 0;
  };

  static SAMESTATE_HOST_DEVICE int tiles(const Parameters& p) { return (p.P + kP - 1) / kP; }
  static void launch(const Parameters& p, cudaStream_t stream) {
    cuda::launch<DualityRows>(blocks_of(p.states() * tiles(p), 1), sizeof(Shared), p, stream);
  }

  static SAMESTATE_DEVICE Place place_of(const Parameters& p) {
    Place at;
    at.of = quotient(block_index(), tiles(p));
    at.channel = static_cast<int>(block_index() - at.of * tiles(p)) * kP;
    const std::int64_t b = quotient(at.of, p.H);
    at.h = static_cast<int>(at.of - b * p.H);
    at.group = at.h / (p.H / p.G);
    at.row = b * p.tokens;
    at.products = (b * p.G + at.group) * p.chunks() * kT * kT;
    return at;
  }

  /// Eight threads a token.
  static SAMESTATE_DEVICE void stage_chunk(const Parameters& p, const Place& at, std::int64_t begin,
                                           Stage& stage) {
    const int t = thread_index() / 8, part = thread_index() % 8;
    const bool exists = begin + t < p.tokens, in_pieces = (p.N | p.P) % 4 == 0;
    const std::int64_t row = at.row + begin + t;
    const float* const C = p.C + (row * p.G + at.group) * p.N;
    const float* const B = p.B + (row * p.G + at.group) * p.N;
    SAMESTATE_UNROLL
    for (int c = 4 * part; c < kN; c += 32) {
      stage_quad(&stage.C[t][c], C, c, exists ? p.N : 0, in_pieces);
      stage_quad(&stage.B[t][c], B, c, exists ? p.N : 0, in_pieces);
    }
    stage_quad(&stage.x[t][4 * part], p.x + (row * p.H + at.h) * p.P + at.channel, 4 * part,
               exists ? p.P - at.channel : 0, in_pieces);
    if (part < kT / 4)
      copy_async_16(&stage.scores[t][4 * part], p.products + at.products + (begin + t) * kT + 4 * part);
    if (part == kT / 4)
      stage_quad(stage.steps[t], p.steps + (at.of * p.tokens + begin + t) * 4, 0, exists ? 4 : 0, true);
    copies_commit();
  }

  /// Makes the factors of the chunk's `n` tokens, eight threads per token; read them after a barrier.
  static SAMESTATE_DEVICE void make_factors(Stage& stage, int n, Shared& shared) {
    const int t = thread_index() / 8, part = thread_index() % 8;
    const DualityStep step = DualityStep::at(stage.steps[t]);
    SAMESTATE_UNROLL
    for (int j = part; j < kT; j += 8) {
      const DualityStep earlier = DualityStep::at(stage.steps[j]);
      float& score = stage.scores[t][j];
      score = j <= t && t < n ? score * (step.since(earlier) * earlier.delta) : 0.0F;
    }
    const float weight = t < n ? step.delta * DualityStep::at(stage.steps[n - 1]).since(step) : 0.0F;
    const Quad x = load_quad(&stage.x[t][4 * part]);
    const float written[4] = {weight * x.x, weight * x.y, weight * x.z, weight * x.w};
    float* const to = shared.written[t] + 4 * part;
    *reinterpret_cast<Vector<float, 4>*>(to) = narrowed<float>(written);
    if (part == 0) shared.from_start[t] = step.since_start();
  }

  /// Half of the first parts of a lane to another one, which hands over the half that this one keeps.
  template <int half>
  static SAMESTATE_DEVICE void fold(float (&parts)[16]) {
    const bool upper = (lane_index() & half) != 0;
    SAMESTATE_UNROLL
    for (int i = 0; i < half; ++i) {
      const float kept = upper ? parts[i + half] : parts[i], given = upper ? parts[i] : parts[i + half];
      parts[i] = kept + shuffle_xor(given, half);
    }
  }
  /// Sums over the 16 lanes of four tokens' and four channels' parts: lane l has that of token l / 4 and channel l % 4.
  static SAMESTATE_DEVICE float sum_over_lanes(float (&parts)[16]) {
    fold<8>(parts);
    fold<4>(parts);
    fold<2>(parts);
    fold<1>(parts);
    return parts[0];
  }

  /// y of the chunk's tokens, four at a time.
  static SAMESTATE_DEVICE void read_state(const Parameters& p, const Place& at, std::int64_t begin, int n,
                                          const State& S, const Stage& stage, const Shared& shared) {
    const int of_lane = lane_index() % 16, column = first_channel() + of_lane % 4;
    const float skip = p.skip[at.h];
    SAMESTATE_UNROLL
    for (int first = 0; first < kT; first += 4) {
      if (first >= n) break;
      float parts[16] = {};
      SAMESTATE_UNROLL
      for (int t = 0; t < 4; ++t) {
        SAMESTATE_UNROLL
        for (int q = 0; q < kQuads; ++q) {
          const Quad c = load_quad(&stage.C[first + t][64 * q + 4 * of_lane]);
          SAMESTATE_UNROLL
          for (int channel = 0; channel < 4; ++channel) {
            const float(&s)[4] = S[channel][q];
            parts[4 * t + channel] = add_products(c, {s[0], s[1], s[2], s[3]}, parts[4 * t + channel]);
          }
        }
      }
      const int i = first + of_lane / 4;
      float y = sum_over_lanes(parts) * shared.from_start[i];
      SAMESTATE_UNROLL
      for (int j = 0; j <= first; j += 4) {
        const Quad x = {stage.x[j][column], stage.x[j + 1][column], stage.x[j + 2][column],
                        stage.x[j + 3][column]};
        y = add_products(load_quad(&stage.scores[i][j]), x, y);
      }
      y = fused(skip, stage.x[i][column], y);
      if (i < n && at.channel + column < p.P)
        p.y[((at.row + begin + i) * p.H + at.h) * p.P + at.channel + column] = y;
    }
  }

  static SAMESTATE_DEVICE void write_state(float kept, const Stage& stage, const Shared& shared, State& S) {
    SAMESTATE_UNROLL
    for (auto& of_channel : S) {
      SAMESTATE_UNROLL
      for (auto& quad : of_channel) {
        SAMESTATE_UNROLL
        for (float& element : quad) element *= kept;
      }
    }
    const int of_lane = lane_index() % 16;
    SAMESTATE_UNROLL_BY(4)
    for (int j = 0; j < kT; ++j) {
      const Quad x = load_quad(&shared.written[j][first_channel()]);
      const float written[4] = {x.x, x.y, x.z, x.w};
      SAMESTATE_UNROLL
      for (int q = 0; q < kQuads; ++q) {
        const Quad b = load_quad(&stage.B[j][64 * q + 4 * of_lane]);
        SAMESTATE_UNROLL
        for (int channel = 0; channel < 4; ++channel) {
          float(&s)[4] = S[channel][q];
          s[0] = fused(written[channel], b.x, s[0]);
          s[1] = fused(written[channel], b.y, s[1]);
          s[2] = fused(written[channel], b.z, s[2]);
          s[3] = fused(written[channel], b.w, s[3]);
        }
      }
    }
  }

  /// The first of this lane's four, of the block's.
  static SAMESTATE_DEVICE int first_channel() { return 8 * warp_index() + lane_index() / 16 * 4; }

  /// `visit(offset, quad, exist)` for the quads of states of this lane that exist, `exist` of four.
  template <class Visit>
  static SAMESTATE_DEVICE void each_of_state(const Parameters& p, const Place& at, State& S, Visit&& visit) {
    SAMESTATE_UNROLL
    for (int channel = 0; channel < 4; ++channel) {
      SAMESTATE_UNROLL
      for (int q = 0; q < kQuads; ++q) {
        const int of = at.channel + first_channel() + channel, n = 64 * q + 4 * (lane_index() % 16);
        if (of < p.P && n < p.N) visit((at.of * p.P + of) * p.N + n, S[channel][q], p.N - n);
      }
    }
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* memory) {
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const Place at = place_of(p);
    if (p.tokens > 0) stage_chunk(p, at, 0, shared.stages[0]);
    State S = {};
    const bool vector = p.N % 4 == 0;
    each_of_state(p, at, S, [&](std::int64_t i, float(&quad)[4], int exist) {
      if (vector) {
        const Quad s = load_quad(p.state + i);
        quad[0] = s.x, quad[1] = s.y, quad[2] = s.z, quad[3] = s.w;
        return;
      }
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) quad[e] = e < exist ? p.state[i + e] : 0.0F;
    });
    int which = 0;
    SAMESTATE_NO_UNROLL
    for (std::int64_t begin = 0; begin < p.tokens; begin += kT) {
      Stage& stage = shared.stages[which];
      copies_wait<0>();
      block_barrier();  // everybody's copies are there, and the chunk before this one has been read
      which = 1 - which;
      if (begin + kT < p.tokens) stage_chunk(p, at, begin + kT, shared.stages[which]);
      const int n = p.tokens - begin < kT ? static_cast<int>(p.tokens - begin) : kT;
      make_factors(stage, n, shared);
      block_barrier();
      read_state(p, at, begin, n, S, stage, shared);
      write_state(shared.from_start[n - 1], stage, shared, S);
    }
    each_of_state(p, at, S, [&](std::int64_t i, float(&quad)[4], int exist) {
      if (vector) {
        float* const to = p.last_state + i;
        *reinterpret_cast<Vector<float, 4>*>(to) = narrowed<float>(quad);
        return;
      }
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) {
        if (e < exist) p.last_state[i + e] = quad[e];
      }
    });
  }
};

}  // namespace samestate::cuda

#pragma once

#include <cstdint>

#include "optimized/cuda/delta/chunk_mma_list_tiles.cuh"
#include "optimized/cuda/units/row_parts.cuh"

/// The way of the state along the chunks of a list (chunk_mma_list_tiles.cuh).
namespace samestate::cuda {

/// A virtual head and 64 value columns by four warps of 16, which own them: S^T in the accumulators of a warp for the whole list.
/// Chunks are copied to shared memory one ahead. Width at most kWidth.
template <int kWidth>
struct ChunkBody {
  using Parameters = ChunkParameters;
  using Place = RuleBody<Bf16, 4>::Place;
  using Products = StateProducts<kWidth>;
  static constexpr int kThreads = 128;
  static constexpr int kResidentBlocks = 2;
  static constexpr int kColumns = 64;
  static constexpr int kRow = Products::kRow;
  static constexpr int kValueRow = kColumns + 8;
  static constexpr int kTileRow = kStateTokens + 8;

  struct alignas(16) Stage {
    Bf16 q[kStateTokens][kRow];
    Bf16 k[kStateTokens][kRow];
    Bf16 v[kStateTokens][kValueRow];  ///< afterwards o
    Bf16 inverse[kParts][kStateTokens][kTileRow];
    Bf16 scores[kParts][kStateTokens][kTileRow];
    float beta[kStateTokens], read[kStateTokens], query[kStateTokens], write[kStateTokens], decay[4];
    std::int64_t slot_row[kStateTokens];  ///< -1: no token
  };
  static constexpr std::size_t kSharedBytes = 2 * sizeof(Stage);

  /// The place of this thread's token of a chunk: four threads a token.
  static SAMESTATE_DEVICE ListEntry entry_of(const RuleParameters<Bf16>& r, const Place& at, int chunk) {
    const int i = chunk * kStateTokens + thread_index() / 4;
    return i < at.tokens ? r.entries[at.list * r.shape.tokens + i] : ListEntry{-1, 0};
  }

  static SAMESTATE_DEVICE void stage_chunk(const RuleParameters<Bf16>& r, const Place& at, ListEntry entry,
                                           const ChunkTile& tile, Stage& stage) {
    const DendriticShape& s = r.shape;
    const int t = thread_index() / 4, part = thread_index() % 4;
    const bool exists = entry.token >= 0;
    const std::int64_t token = exists ? at.b * s.tokens + entry.token : 0;
    const std::int64_t head = token * s.heads + at.h;
    const std::int64_t slot_row = head * s.slots() + entry.slot;
    const std::int64_t key =
        r.key_row(token, recomputed(at.h) / r.group, entry.slot) * s.channels + at.window * s.stride;
    const std::int64_t value = head * s.values + at.column;
    if (in_pieces(s)) {
      SAMESTATE_UNROLL
      for (int c = 8 * part; c < kWidth; c += 32) {
        stage_piece(&stage.q[t][c], r.q + key + c, exists && c < s.width);
        stage_piece(&stage.k[t][c], r.k + key + c, exists && c < s.width);
      }
      SAMESTATE_UNROLL
      for (int c = 8 * part; c < kColumns; c += 32)
        stage_piece(&stage.v[t][c], r.v + value + c, exists && at.column + c < s.values);
    } else {
      stage_elements<kWidth>(stage.q[t], r.q + key, exists ? s.width : 0, part);
      stage_elements<kWidth>(stage.k[t], r.k + key, exists ? s.width : 0, part);
      stage_elements<kColumns>(stage.v[t], r.v + value, exists ? s.values - at.column : 0, part);
    }
    SAMESTATE_UNROLL
    for (int i = 0; i < kParts; ++i) {
      copy_async_16(&stage.inverse[i][t][8 * part], &tile.inverse[i][t][8 * part]);
      copy_async_16(&stage.scores[i][t][8 * part], &tile.scores[i][t][8 * part]);
    }
    constexpr int kGatePieces = (4 * kStateTokens + 4) / 4;
    static_assert(kGatePieces <= kThreads);
    if (thread_index() < kGatePieces)
      copy_async_16(stage.beta + 4 * thread_index(), tile.beta + 4 * thread_index());
    if (part == 0) stage.slot_row[t] = exists ? slot_row : -1;
    copies_commit();
  }

  /// y += x M^T, M lower triangular, both in parts: tokens to tokens. Sums take turns as in StateProducts.
  static SAMESTATE_DEVICE void mix_tokens(const float (&x)[4][4],
                                          const Bf16 (&M)[kParts][kStateTokens][kTileRow], float (&y)[4][4]) {
    const int lane = lane_index();
    SAMESTATE_UNROLL
    for (int from = 0; from < 2; ++from) {
      std::uint32_t parts[kParts][4];
      Products::split_factor(x[2 * from], x[2 * from + 1], parts);
      SAMESTATE_UNROLL
      for (int of_M = 0; of_M < kParts; ++of_M) {
        std::uint32_t of[2][4];
        SAMESTATE_UNROLL
        for (int to = from; to < 2; ++to)
          load_matrices<false>(of[to],
                               &M[of_M][16 * to + lane % 8 + lane / 16 * 8][16 * from + lane / 8 % 2 * 8]);
        SAMESTATE_UNROLL
        for (int part = 0; part < kParts - of_M; ++part) {
          SAMESTATE_UNROLL
          for (int j = 2 * from; j < 4; ++j)
            multiply_bf16(y[j], parts[part], of[j / 2][j % 2 * 2], of[j / 2][j % 2 * 2 + 1]);
        }
      }
    }
  }

  /// One chunk on this warp's 16 columns; leaves o in stage.v.
  static SAMESTATE_DEVICE void advance(float (&state)[kWidth / 8][4], Stage& stage) {
    const int lane = lane_index(), column = 16 * warp_index();
    float x[4][4] = {}, o[4][4] = {};
    SAMESTATE_UNROLL
    for (int c = 0; c < kWidth; c += 16) {
      std::uint32_t parts[kParts][4];
      Products::split_factor(state[c / 8], state[c / 8 + 1], parts);
      Products::read_state(&stage.k[0][0], c, parts, x);
      Products::read_state(&stage.q[0][0], c, parts, o);
    }
    SAMESTATE_UNROLL
    for (int j = 0; j < 2; ++j) {
      std::uint32_t v[4];  // value columns 0 to 7 and 8 to 15, tokens 8 (2 j) and 8 (2 j + 1) on
      load_matrices<true>(v, &stage.v[16 * j + lane % 8 + lane / 16 * 8][column + lane / 8 % 2 * 8]);
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int t = 16 * j + 8 * i + lane % 4 * 2;
        const Pair beta = load_pair(stage.beta + t), read = load_pair(stage.read + t);
        const Pair query = load_pair(stage.query + t);
        float(&to)[4] = x[2 * j + i];
        float(&out)[4] = o[2 * j + i];
        SAMESTATE_UNROLL
        for (int half = 0; half < 2; ++half) {
          const std::uint32_t pair = v[2 * i + half];
          to[2 * half] = fused(-read.x, to[2 * half], beta.x * float_of(pair << 16));
          to[2 * half + 1] = fused(-read.y, to[2 * half + 1], beta.y * float_of(pair & 0xffff0000U));
          out[2 * half] *= query.x;
          out[2 * half + 1] *= query.y;
        }
      }
    }
    float written[4][4] = {};
    mix_tokens(x, stage.inverse, written);
    mix_tokens(written, stage.scores, o);
    const float decay = stage.decay[0];
    SAMESTATE_UNROLL
    for (auto& tile : state) {
      SAMESTATE_UNROLL
      for (float& element : tile) element *= decay;
    }
    SAMESTATE_UNROLL
    for (int from = 0; from < 2; ++from) {
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const Pair write = load_pair(stage.write + 16 * from + 8 * i + lane % 4 * 2);
        float(&of)[4] = written[2 * from + i];
        of[0] *= write.x, of[1] *= write.y, of[2] *= write.x, of[3] *= write.y;
      }
      std::uint32_t parts[kParts][4];
      Products::split_factor(written[2 * from], written[2 * from + 1], parts);
      Products::write_state(&stage.k[16 * from][0], parts, state);
    }
    warp_barrier();  // every lane has read v
    SAMESTATE_UNROLL
    for (int j = 0; j < 4; ++j) {
      SAMESTATE_UNROLL
      for (int i = 0; i < 4; ++i)
        stage.v[8 * j + lane % 4 * 2 + i % 2][column + lane / 4 + i / 2 * 8] = narrow<Bf16>(o[j][i]);
    }
  }

  /// This warp's columns of o.
  static SAMESTATE_DEVICE void store_rows(const RuleParameters<Bf16>& r, const Place& at,
                                          const Stage& stage) {
    const DendriticShape& s = r.shape;
    const int column = 16 * warp_index() + lane_index() % 2 * 8;
    SAMESTATE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int t = lane_index() / 2 + 16 * half;
      const int exist = s.values - at.column - column;
      if (stage.slot_row[t] < 0 || exist <= 0) continue;
      Bf16* const to = r.o + (stage.slot_row[t] * s.windows + at.window) * s.values + at.column + column;
      const Bf16* const from = stage.v[t] + column;
      store_eight(to, from, exist, s.values % 8 == 0);
    }
  }

  template <class Visit>
  static SAMESTATE_DEVICE void each_of_state(const DendriticShape& s, const Place& at,
                                             float (&state)[kWidth / 8][4], Visit&& visit) {
    // Addresses are computed when they are needed: from the first call to the second they would take as many registers.
    const std::int64_t virtual_head =
        ((at.b * s.windows + at.window) * s.branches() + at.e) * s.heads + recomputed(at.h);
    const std::int64_t first = virtual_head * s.width * s.values;
    const int first_key = recomputed(lane_index() % 4 * 2);
    const int first_value = recomputed(at.column + 16 * warp_index() + lane_index() / 4);
    SAMESTATE_UNROLL
    for (int tile = 0; tile < kWidth / 8; ++tile) {
      SAMESTATE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int key = 8 * tile + first_key + i % 2, value = first_value + i / 2 * 8;
        if (key < s.width && value < s.values)
          visit(first + static_cast<std::int64_t>(key) * s.values + value, state[tile][i]);
      }
    }
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    const RuleParameters<Bf16>& r = p.rule;
    const DendriticShape& s = r.shape;
    Stage* const stages = reinterpret_cast<Stage*>(shared);
    // A block has one place: more than a grid holds would have more states than the device.
    const Place at = RuleBody<Bf16, 4>::place_of(r, block_index());
    const int chunks = (at.tokens + kStateTokens - 1) / kStateTokens;
    const ChunkTile* const tiles =
        p.tiles + ((at.b * s.heads + at.h) * p.capacity() + first_chunk(r, at.b, at.e, at.h)) * s.windows +
        at.window;
    const auto tile = [&](int chunk) -> const ChunkTile& {
      return tiles[static_cast<std::int64_t>(chunk) * s.windows];
    };
    float state[kWidth / 8][4] = {};
    each_of_state(s, at, state, [&](std::int64_t i, float& x) { x = r.initial[i]; });
    if (chunks > 0) stage_chunk(r, at, entry_of(r, at, 0), tile(0), stages[0]);
    ListEntry next = entry_of(r, at, 1);
    SAMESTATE_NO_UNROLL
    for (int chunk = 0; chunk < chunks; ++chunk) {
      Stage& stage = stages[chunk % 2];
      if (chunk + 1 < chunks) {
        stage_chunk(r, at, next, tile(chunk + 1), stages[(chunk + 1) % 2]);
        next = entry_of(r, at, chunk + 2);
      } else {
        copies_commit();
      }
      copies_wait<1>();
      block_barrier();
      advance(state, stage);
      warp_barrier();
      store_rows(r, at, stage);
      block_barrier();
    }
    each_of_state(s, at, state, [&](std::int64_t i, float& x) { r.final[i] = x; });
  }
};

/// The rule on all lists, width at most 256. In 16 bit and where `chunks` is not null it goes in chunks, made of two launches;
/// else token by token.
void launch_rule(const RuleParameters<float>& p, ChunkTile* chunks, cudaStream_t stream);
void launch_rule(const RuleParameters<Bf16>& p, ChunkTile* chunks, cudaStream_t stream);

/// Returns the `chunks` that launch_rule takes for lists of up to T tokens, with `scratch(count)` as memory
/// for that many tiles: a chunk costs as much as some seven single tokens.
template <class Operand, class Scratch>
[[nodiscard]] ChunkTile* chunks_of(const RuleParameters<Operand>& p, Scratch&& scratch) {
  if constexpr (sizeof(Operand) == 2) {
    if (p.shape.tokens >= kStateTokens) return scratch(ListChunks<kStateTokens>{p}.tile_count());
  }
  return nullptr;
}

}  // namespace samestate::cuda

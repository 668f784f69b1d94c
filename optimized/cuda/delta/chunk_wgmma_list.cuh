#pragma once

#include <cstdint>

#include "optimized/cuda/delta/chunk_wgmma_list_tiles.cuh"
#include "optimized/cuda/units/bf16_parts.cuh"
#include "optimized/cuda/units/key_tiles.cuh"
#include "optimized/cuda/units/row_parts.cuh"
#include "optimized/cuda/units/wgmma_wide.cuh"

/// The way of the state along the chunks of 64 tokens of a list, by products of warpgroups (EQUATIONS 5.5):
///   V' = T (beta V - beta e^G K S),  O = scale e^G Q S + P V',  S <- e^{G_C} S + K^T (e^{G_C - G} V').
/// T, P, the state, V' and its decayed rows are rounded to bf16 where they are multiplied; the residual is three numbers of bf16,
/// whose sum it is. The state itself stays in fp32.
namespace samestate::cuda {

/// A virtual head and 128 value columns by two warpgroups of 64, whose S^T stays in registers for the whole list, and one that
/// copies chunks to shared memory for them. Keys at most kWidth.
template <int kWidth>
struct ListChainBody {
  static_assert(kWidth % 64 == 0 || kWidth % 64 == 32);
  using Parameters = ListChunkParameters;
  static constexpr int kGroup = 128;  ///< threads
  static constexpr int kStates = 2;   ///< groups with a state
  static constexpr int kThreads = (kStates + 1) * kGroup;
  static constexpr int kColumns = 64 * kStates;
  static constexpr int kPanels = (kWidth + 63) / 64, kStages = 2;
  static constexpr int kSteps = kWidth / 16;  ///< steps of products over keys

  struct Stage {
    Bf16 keys[kPanels][2][kTileBytes / 2];  ///< those of k, then those of q
    Bf16 v[kStates][kTileBytes / 2];        ///< afterwards o
    ListTile tile;
    std::int64_t out_row[kListChunk];  ///< element of o; -1 if there is no token
    std::int64_t value_row[kListChunk];
  };
  static constexpr std::size_t kStageBytes =
      (sizeof(Stage) + kTileAlignment - 1) / kTileAlignment * kTileAlignment;
  static constexpr std::size_t kSharedBytes =
      kStages * kStageBytes + sizeof(KeyRing<kStages>) + kTileAlignment;
  static_assert(kSharedBytes <= 227 * 1024, "what a block may have");

  /// Where a block works.
  struct Place {
    std::int64_t list, b, state;
    int e, h, window, column, tokens;
    std::int64_t tile;  ///< the first
  };
  /// Called by every warp. A grid has fewer than 2^31 blocks.
  static SAMESTATE_DEVICE Place place_of(const Parameters& p, std::uint32_t item) {
    const RuleParameters<Bf16>& r = p.rule;
    const DendriticShape& s = r.shape;
    const auto next = [&item](int extent) {
      const auto n = static_cast<std::uint32_t>(extent), rest = item % n;
      item /= n;
      return static_cast<int>(rest);
    };
    Place at;
    at.column = next(r.tiles(kColumns)) * kColumns;
    at.window = next(s.windows);
    at.list = item;
    at.h = next(s.heads);
    at.e = next(s.branches());
    at.b = item;
    at.state = (((at.b * s.windows + at.window) * s.branches() + at.e) * s.heads + at.h) * s.width * s.values;
    at.tokens = r.length[at.list];
    at.tile =
        ((at.b * s.heads + at.h) * p.capacity() + chunks_before(r, at.b, at.h, at.e)) * s.windows + at.window;
    return at;
  }

  static SAMESTATE_HOST_DEVICE std::int64_t items_of(const Parameters& p) {
    const DendriticShape& s = p.rule.shape;
    return s.lists() * s.windows * p.rule.tiles(kColumns);
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
    (void)p, (void)shared;
    __trap();  // launch_rule() asks first whether the device is one of 9.0
#else
    const auto start = reinterpret_cast<std::uintptr_t>(shared);
    unsigned char* const stages = shared + (kTileAlignment - start % kTileAlignment) % kTileAlignment;
    auto& ring = *reinterpret_cast<KeyRing<kStages>*>(stages + kStages * kStageBytes);
    if (thread_index() == 0) {
      for (Barrier& b : ring.full) b.init(kGroup / 32 + 1);
      for (Barrier& b : ring.empty) b.init(kStates * kGroup / 32);
      barriers_ready();
    }
    block_barrier();
    // A block takes one item after the other: chunks of the next are copied while the state of this one is stored.
    const auto items = static_cast<std::uint32_t>(items_of(p)),
               step = static_cast<std::uint32_t>(grid_blocks());
    const int role = uniform(warp_index() / 4);
    int n = 0;  // chunks so far
    if (role == kStates) {
      fewer_registers<40>();
      SAMESTATE_NO_UNROLL
      for (auto item = static_cast<std::uint32_t>(block_index()); item < items; item += step) {
        const Place at = place_of(p, item);
        in_pieces(p.rule.shape) ? fetch<true>(p, at, n, stages, ring) : fetch<false>(p, at, n, stages, ring);
      }
    } else {
      more_registers<232>();
      SAMESTATE_NO_UNROLL
      for (auto item = static_cast<std::uint32_t>(block_index()); item < items; item += step) {
        const Place at = place_of(p, item);
        State state(p.rule, at, role, stages, ring);
        state.load();
        state.follow(n);
        state.store();
      }
    }
#endif
  }

 private:
  static SAMESTATE_DEVICE Stage& stage_of(unsigned char* stages, int n) {
    return *reinterpret_cast<Stage*>(stages + n % kStages * kStageBytes);
  }

  /// All chunks of an item, a stage ahead, of which the first is chunk n of the block; `pieces`: rows consist of 16 bytes.
  template <bool pieces>
  static SAMESTATE_DEVICE void fetch(const Parameters& p, const Place& at, int& n, unsigned char* stages,
                                     KeyRing<kStages>& ring) {
    const RuleParameters<Bf16>& r = p.rule;
    const int chunks = list_chunks(at.tokens), thread = thread_index() - kStates * kGroup;
    const int mine = thread / 32 * 16 + thread % 16;  // the token whose rows this lane finds
    ListEntry next = entry_of(r, at, mine);
    SAMESTATE_NO_UNROLL
    for (int chunk = 0; chunk < chunks; ++chunk, ++n) {
      ring.wait_empty(n);
      Stage& stage = stage_of(stages, n);
      Barrier& full = ring.full[n % kStages];
      if (thread == 0) {
        const std::int64_t tile = at.tile + static_cast<std::int64_t>(chunk) * r.shape.windows;
        const int key_bytes = 2 * p.key_elements();
        full.expect(kListTileBytes + key_bytes);
        load_bytes(&stage.tile, p.tiles + tile, full, kListTileBytes);
        load_bytes(stage.keys, p.keys + tile * p.key_elements(), full, key_bytes);
      }
      if (thread % 32 < 16) find_rows(r, at, next, mine, stage);
      next = entry_of(r, at, (chunk + 1) * kListChunk + mine);
      warp_barrier();
      copy_rows<pieces>(r, at, thread, stage);
      copies_commit();
      copies_wait<0>();
      full.arrive_warp();
    }
  }
  static SAMESTATE_DEVICE ListEntry entry_of(const RuleParameters<Bf16>& r, const Place& at, int i) {
    return i < at.tokens ? r.entries[at.list * r.shape.tokens + i] : ListEntry{-1, 0};
  }
  static SAMESTATE_DEVICE void find_rows(const RuleParameters<Bf16>& r, const Place& at, ListEntry entry,
                                         int t, Stage& stage) {
    const DendriticShape& s = r.shape;
    const std::int64_t token = entry.token >= 0 ? at.b * s.tokens + entry.token : 0;
    const std::int64_t head = token * s.heads + at.h;
    const std::int64_t out_row = ((head * s.slots() + entry.slot) * s.windows + at.window) * s.values;
    stage.out_row[t] = entry.token >= 0 ? out_row + at.column : -1;
    stage.value_row[t] = head * s.values + at.column;
  }

  /// The 16 tokens of this warp, eight lanes a token.
  template <bool pieces>
  static SAMESTATE_DEVICE void copy_rows(const RuleParameters<Bf16>& r, const Place& at, int thread,
                                         Stage& stage) {
    const int c = thread % 8 * 8, values = r.shape.values - at.column;
    SAMESTATE_UNROLL
    for (int pass = 0; pass < 4; ++pass) {
      const int t = thread / 32 * 16 + pass * 4 + thread % 32 / 8;
      const bool there = stage.out_row[t] >= 0;
      const Bf16* const v = r.v + stage.value_row[t] + c;
      const int offset = swizzled(t, 2 * c) / 2;
      SAMESTATE_UNROLL
      for (int group = 0; group < kStates; ++group)
        copy_piece<pieces>(stage.v[group] + offset, v + 64 * group, there ? values - 64 * group - c : 0);
    }
  }
  /// Eight elements, of which `exist` exist, then zeros.
  template <bool pieces>
  static SAMESTATE_DEVICE void copy_piece(Bf16* to, const Bf16* from, int exist) {
    if (pieces || exist <= 0) {
      stage_piece(to, from, exist > 0);
    } else {
      SAMESTATE_NO_UNROLL
      for (int i = 0; i < 8; ++i) to[i] = i < exist ? from[i] : Bf16{};
    }
  }

  /// One group: 64 value columns. c[4 j + 2 i + e] of a product is value column row + 8 i and key or token 8 j + column + e.
  struct State {
    const RuleParameters<Bf16>& r;
    const Place& at;
    int group;
    unsigned char* stages;
    KeyRing<kStages>& ring;
    int warp = broadcast(warp_index() % 4);
    int row = 16 * warp + lane_index() / 4, column = 2 * (lane_index() % 4);
    float S[32 * kPanels]{};  ///< the state of kWidth keys
    // Arrays of their own: a product's sums lie in neighbouring registers, and those of one product here are not those of another.
    float X[32]{}, Y[32]{};        ///< S^T K^T, S^T Q^T
    float V[32]{};                 ///< V'^T
    float O[32]{};                 ///< O^T
    std::uint32_t B[kSteps][4]{};  ///< S rounded

    SAMESTATE_DEVICE State(const RuleParameters<Bf16>& rule, const Place& place, int of,
                           unsigned char* memory, KeyRing<kStages>& of_stages)
        : r(rule), at(place), group(of), stages(memory), ring(of_stages) {}

    SAMESTATE_DEVICE void load() {
      each_cell([&](std::int64_t i, float& x) { x = r.initial[i]; });
    }
    SAMESTATE_DEVICE void store() {
      each_cell([&](std::int64_t i, float& x) { r.final[i] = x; });
    }

    SAMESTATE_DEVICE void follow(int& n) {
      const int chunks = list_chunks(at.tokens);
      SAMESTATE_NO_UNROLL
      for (int chunk = 0; chunk < chunks; ++chunk, ++n) {
        Stage& stage = stage_of(stages, n);
        round_state();
        ring.wait_full(n);
        read_state(stage);
        std::uint32_t left[kParts][4][4];
        residual(stage, left);
        make_values(stage, left);
        write_state(stage);
        store_rows(stage);
        products_wait<0>();
        ring.release(n);
      }
    }

   private:
    template <class Visit>
    SAMESTATE_DEVICE void each_cell(Visit&& visit) {
      const DendriticShape& s = r.shape;
      const int first_key = recomputed(column), value = recomputed(at.column + 64 * group + row);
      std::int64_t cell = at.state + static_cast<std::int64_t>(first_key) * s.values + value;
      if (s.width == kWidth && at.column + 64 * group + 64 <= s.values) {  // all of them exist
        SAMESTATE_UNROLL
        for (int i = 0; i < kWidth / 2; i += 4) {
          visit(cell, S[i]);
          visit(cell + s.values, S[i + 1]);
          visit(cell + 8, S[i + 2]);
          visit(cell + s.values + 8, S[i + 3]);
          cell += 8 * s.values;
        }
        return;
      }
      SAMESTATE_UNROLL
      for (int i = 0; i < kWidth / 2; ++i) {
        const int key = i / 4 * 8 + first_key + i % 2, over = i % 4 / 2 * 8;
        if (key < s.width && value + over < s.values)
          visit(cell + static_cast<std::int64_t>(i / 4 * 8 + i % 2) * s.values + over, S[i]);
      }
    }

    SAMESTATE_DEVICE void round_state() {
      SAMESTATE_UNROLL
      for (int kk = 0; kk < kSteps; ++kk) {
        SAMESTATE_UNROLL
        for (int i = 0; i < 4; ++i) B[kk][i] = pack(S[8 * kk + 2 * i], S[8 * kk + 2 * i + 1]);
      }
    }

    /// X = S^T K^T, Y = S^T Q^T
    SAMESTATE_DEVICE void read_state(const Stage& stage) {
      products_begin();
      SAMESTATE_UNROLL
      for (int kk = 0; kk < kSteps; ++kk)
        multiply_rows(X, Y, B[kk], by_rows(stage.keys[kk / 4][0], kk % 4), kk > 0);
      products_commit();
      products_wait<0>();
    }

    /// Byte of a value tile that this lane passes to load_matrices<true> and store_matrices<true>; 16 tokens further is
    /// 2048 bytes further.
    SAMESTATE_DEVICE int value_offset() const {
      const int lane = recomputed(lane_index()), matrix = lane / 8;
      return (8 * (matrix / 2) + lane % 8) * 128 + ((32 * warp + 16 * (matrix % 2)) ^ (lane % 8 * 16));
    }

    /// beta V - beta e^G K S in parts: with two of them V' would round the other way now and then.
    SAMESTATE_DEVICE void residual(const Stage& stage, std::uint32_t (&left)[kParts][4][4]) {
      const Bf16* const values = stage.v[group] + value_offset() / 2;
      SAMESTATE_UNROLL
      for (int j = 0; j < 4; ++j) {
        std::uint32_t v[4];
        load_matrices<true>(v, values + 1024 * j);
        SAMESTATE_UNROLL
        for (int i = 0; i < 2; ++i) {
          const int t = 16 * j + 8 * i + column;
          const Pair beta = load_pair(stage.tile.beta + t), read = load_pair(stage.tile.read + t);
          SAMESTATE_UNROLL
          for (int half = 0; half < 2; ++half) {
            const float* const x = &X[8 * j + 4 * i + 2 * half];
            std::uint32_t parts[kParts];
            split_pair(fused(-read.x, x[0], beta.x * low(v[2 * i + half])),
                       fused(-read.y, x[1], beta.y * high(v[2 * i + half])), parts);
            SAMESTATE_UNROLL
            for (int part = 0; part < kParts; ++part) left[part][j][2 * i + half] = parts[part];
          }
        }
      }
    }

    /// V = V'^T; meanwhile what was read and S are scaled.
    SAMESTATE_DEVICE void make_values(const Stage& stage, const std::uint32_t (&left)[kParts][4][4]) {
      products_begin();
      SAMESTATE_UNROLL
      for (int kk = 0; kk < 4; ++kk) {
        SAMESTATE_UNROLL
        for (int part = 0; part < kParts; ++part)
          multiply(V, left[part][kk], by_rows(stage.tile.inverse, kk), kk + part > 0);
      }
      products_commit();
      const float* const query = stage.tile.query;
      SAMESTATE_UNROLL
      for (int j = 0; j < 8; ++j) {
        const Pair by = load_pair(query + 8 * j + column);
        O[4 * j] = Y[4 * j] * by.x, O[4 * j + 1] = Y[4 * j + 1] * by.y;
        O[4 * j + 2] = Y[4 * j + 2] * by.x, O[4 * j + 3] = Y[4 * j + 3] * by.y;
      }
      const float decay = stage.tile.decay[0];
      SAMESTATE_UNROLL
      for (int i = 0; i < kWidth / 2; ++i) S[i] *= decay;
      products_wait<0>();
    }

    /// O += V'^T P^T, S^T += (e^{G_C - G} V')^T K, the latter still under way.
    SAMESTATE_DEVICE void write_state(const Stage& stage) {
      std::uint32_t rounded[4][4], D[4][4];
      SAMESTATE_UNROLL
      for (int j = 0; j < 8; ++j) {
        const Pair by = load_pair(stage.tile.write + 8 * j + column);
        SAMESTATE_UNROLL
        for (int i = 0; i < 2; ++i) {
          const float x = V[4 * j + 2 * i], y = V[4 * j + 2 * i + 1];
          rounded[j / 2][2 * (j % 2) + i] = pack(x, y);
          D[j / 2][2 * (j % 2) + i] = pack(x * by.x, y * by.y);
        }
      }
      products_begin();
      SAMESTATE_UNROLL
      for (int kk = 0; kk < 4; ++kk) multiply(O, rounded[kk], by_rows(stage.tile.scores, kk), true);
      products_commit();
      SAMESTATE_UNROLL
      for (int kk = 0; kk < 4; ++kk) multiply_panels(S, D[kk], by_panels(stage.keys[0][0], kk, 2));
      products_commit();
      products_wait<1>();
    }

    /// This warp's columns of O, by way of its values.
    SAMESTATE_DEVICE void store_rows(Stage& stage) {
      const float scale = r.scale;
      warp_barrier();  // every lane has read them
      SAMESTATE_UNROLL
      for (int j = 0; j < 4; ++j) {
        const float* const x = &O[8 * j];
        store_matrices<true>(stage.v[group], value_offset() + 2048 * j,
                             words(pack(x[0] * scale, x[1] * scale), pack(x[2] * scale, x[3] * scale),
                                   pack(x[4] * scale, x[5] * scale), pack(x[6] * scale, x[7] * scale)));
      }
      warp_barrier();
      const int lane = recomputed(lane_index());
      const int of_group = 64 * group + 16 * warp + lane % 2 * 8;
      const int exist = r.shape.values - at.column - of_group;
      const bool whole = r.shape.values % 8 == 0;
      SAMESTATE_UNROLL
      for (int pass = 0; pass < 4; ++pass) {
        const int t = 16 * pass + lane / 2;
        const std::int64_t out = stage.out_row[t];
        if (out < 0 || exist <= 0) continue;
        const auto* const from = reinterpret_cast<const Bf16*>(
            reinterpret_cast<const unsigned char*>(stage.v[group]) + swizzled(t, 2 * (of_group % 64)));
        store_eight(r.o + out + of_group, from, exist, whole);
      }
    }
  };
};

inline constexpr int kWidestListChain = 160;

/// Returns true if a rule is computed in chunks of 64 here: wider windows have more state than registers.
/// Otherwise it is computed token by token, without rounding any operand.
[[nodiscard]] bool in_list_chunks(const RuleParameters<Bf16>& p);

/// The rule on all lists of which in_list_chunks() is true, in two launches.
void launch_list_rule(const ListChunkParameters& p, cudaStream_t stream);

}  // namespace samestate::cuda

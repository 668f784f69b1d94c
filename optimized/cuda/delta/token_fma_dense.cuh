#pragma once

#include <cstdint>

#include "optimized/cuda/delta/dense_parameters.cuh"
#include "optimized/cuda/delta/token_fma_dense_tile.h"

/// The recurrent form for one token and a few (EQUATIONS 5.5, BOUNDS 4, contracts that read the old state):
///
///   u = beta (v - alpha S^T k);  o = scale (alpha S^T q + u (k . q));  S <- alpha S + k u^T;  alpha = e^g
///
/// with u = v without the delta rule. S^T k and S^T q come from one pass over S, which stays in registers in
/// its stored format; an l2norm is a factor of their sums. A warp has 32 keys of a tile of columns: each lane
/// holds one element of k and of q, and of the state some adjacent columns of some keys. Rows go round the
/// warps, so that a block's accesses sweep its tile from top to bottom. Sums over keys go over a lane's own,
/// over the warp's lanes and, by way of shared memory and the one barrier of a token, over the warps.
namespace samestate::cuda {

/// Sums over the `groups` row groups of a warp, with lane = group * lanes + column. Before, every lane has
/// its own n sums. After it, group g has the n / groups totals from number g n / groups on, but at least one.
/// At each step a lane passes on half of its sums, so that at most 2 n shuffles are needed.
template <int n, int groups, int lanes, int size>
SAMESTATE_DEVICE void fold(float (&x)[size]) {
  if constexpr (groups > 1) {
    constexpr int mask = lanes * groups / 2;
    if constexpr (n == 1) {
      x[0] += shuffle_xor(x[0], mask);
    } else {
      const bool upper = (lane_index() & mask) != 0;
      SAMESTATE_UNROLL
      for (int i = 0; i < n / 2; ++i) {
        const float kept = upper ? x[i + n / 2] : x[i];
        x[i] = kept + shuffle_xor(upper ? x[i] : x[i + n / 2], mask);
      }
    }
    fold<(n > 1 ? n / 2 : 1), groups / 2, lanes>(x);
  }
}

/// x / d for 0 <= x < 2^21, d >= 1, inverse = 1 / d rounded to nearest: (x + 1/2) / d is farther from every
/// integer than its two roundings reach.
SAMESTATE_DEVICE int divided(int x, float inverse) {
  return static_cast<int>((static_cast<float>(x) + 0.5F) * inverse);
}

template <class Operand, class State, bool delta, DecodeTile tile>
struct DecodeBlock {
  static constexpr Trigger trigger = tile.trigger;
  static constexpr int width = tile.width;                ///< adjacent columns of a lane
  static constexpr int lanes = tile.columns / width;      ///< lanes that share a row of the tile
  static constexpr int groups = 32 / lanes;               ///< groups of lanes, each with rows of its own
  static constexpr int rows = kWarpKeys / groups;         ///< rows of a lane: row(0) + r step
  static constexpr int sums = delta ? 2 * width : width;  ///< sums of a lane: S^T q, then S^T k
  static constexpr int folded = sums / groups > 0 ? sums / groups : 1;  ///< sums of a lane after the fold
  static constexpr int warp_words = decode_warp_words(tile, delta);     ///< words of a warp's sums
  static_assert(lanes * width == tile.columns && lanes * groups == 32,
                "a warp's lanes share out whole rows of the tile");
  static_assert(tile.state_bytes == sizeof(State), "the tile is of a state of this format");
  static_assert(width == 1 || width * sizeof(State) == 16, "a lane moves 16 bytes of the state at once");
  static_assert(kWarpKeys == 32, "a lane holds one of its warp's keys");
  static_assert(folded * groups >= sums, "each sum of a column ends in some group of lanes");

  using StateVector = Vector<State, width>;

  const Parameters<Operand, State>& p;
  float* const shared;  ///< decode_words(tile, delta, warps) words
  unsigned turn = 0;    ///< tokens done: their sums lie in two halves of `shared` in turn

  // The tile, and this lane's place in it.
  std::int64_t state = 0;                    ///< offset of this lane's first element in the states
  std::int64_t first_token = 0, tokens = 0;  ///< those of the sequence
  std::int64_t head = 0, key_head = 0;
  int column = 0;           ///< the first column of this lane
  int row = 0, step = 0;    ///< the first row of this lane, and the distance to the next
  int own_row = 0;          ///< whose k and q this lane holds
  int lane = 0, group = 0;  ///< among the lanes of a row, among the groups of a warp
  bool inside = false;      ///< the lane's columns exist

  StateVector S[rows];

  // One token.
  float k = 0.0F, q = 0.0F;  ///< elements own_row
  Vector<Operand, width> v;
  float g = 0.0F, beta = 1.0F, alpha = 1.0F;
  float sum[sums];  ///< S^T q, S^T k
  float dot[4];     ///< k . q, k . k, q . q
  float u[width], o[width];

  SAMESTATE_DEVICE DecodeBlock(const Parameters<Operand, State>& parameters, float* words)
      : p(parameters), shared(words) {
    lane = lane_index() % lanes;
    group = lane_index() / lanes;
    step = groups * block_warps();
    row = groups * warp_index() + group;
    own_row = groups * warp_index() + lane_index() % groups + lane_index() / groups * step;
  }

  /// Returns element row + r step of the data of which every lane has its own row.
  SAMESTATE_DEVICE float at(float x, int r) const { return shuffle(x, r * groups + group); }

  SAMESTATE_DEVICE void place(std::int64_t sequence, std::int64_t value_head, int tile_index) {
    head = value_head;
    column = tile_index * tile.columns + width * lane;
    inside = column < p.dv;
    state = ((sequence * p.Hv + head) * p.dk + row) * p.dv + column;
    first_token = sequence * p.T;
    tokens = tile.single ? 1 : p.T;
  }

  SAMESTATE_DEVICE void load_state() {
    const State* const from = p.initial_state + state;
    const int end = p.initial_state && inside ? p.dk : 0;
    const int stride = recomputed(step * p.dv);
    SAMESTATE_UNROLL
    for (int r = 0; r < rows; ++r) {
      const auto* const at_row = reinterpret_cast<const StateVector*>(from + r * stride);
      if constexpr (width == 1) {
        S[r] = row + r * step < end ? *at_row : StateVector{};
      } else {
        S[r] = load_settled<tile.once>(at_row, row + r * step < end);
      }
    }
  }

  SAMESTATE_DEVICE void wait_for_inputs() { wait_for_grids_before(); }

  /// Its tokens, and the key head: h / (Hv / Hk), or h mod Hk.
  SAMESTATE_DEVICE void find_sequence(std::int64_t sequence) {
    const int h = static_cast<int>(head);
    const int quotient = divided(h, p.inverse_heads);
    key_head = p.tiled_heads ? h - quotient * static_cast<int>(p.Hk) : quotient;
    if (tile.single || !p.cu_seqlens) return;
    first_token = load_global(p.cu_seqlens + sequence);
    tokens = load_global(p.cu_seqlens + sequence + 1) - first_token;
  }

  SAMESTATE_DEVICE void load_token(std::int64_t t) {
    const std::int64_t token = first_token + t;
    const std::int64_t keys = (token * p.Hk + key_head) * p.dk + own_row;
    const std::int64_t gate = token * p.Hv + head;
    k = own_row < p.dk ? widen(load_global(p.k + keys)) : 0.0F;
    q = own_row < p.dk ? widen(load_global(p.q + keys)) : 0.0F;
    v = {};
    if (inside) v = load_global(reinterpret_cast<const Vector<Operand, width>*>(p.v + gate * p.dv + column));
    g = p.g ? load_global(p.g + gate) : 0.0F;
    beta = p.beta ? load_global(p.beta + gate) : 1.0F;
  }

  SAMESTATE_DEVICE void clear_sums() {
    SAMESTATE_UNROLL
    for (int i = 0; i < sums; ++i) sum[i] = 0.0F;
    SAMESTATE_UNROLL
    for (int i = 0; i < 4; ++i) dot[i] = 0.0F;
  }

  /// Over this lane's rows.
  SAMESTATE_DEVICE void read_state() {
    alpha = p.ex2 ? decay<Bf16>(g) : decay<float>(g);
    clear_sums();
    SAMESTATE_UNROLL
    for (int r = 0; r < rows; ++r) {
      const float key = delta ? at(k, r) : 0.0F;
      const float query = at(q, r);
      SAMESTATE_UNROLL
      for (int c = 0; c < width; ++c) {
        const float s = element(S[r], c);
        sum[c] = fused(query, s, sum[c]);
        if constexpr (delta) sum[width + c] = fused(key, s, sum[width + c]);
      }
    }
    dot[0] = k * q;
    dot[1] = k * k;
    dot[2] = q * q;
  }

  /// Over the rows of the warp, and one lane of each sum hands it to the other warps.
  SAMESTATE_DEVICE void share_sums() {
    fold<sums, groups, lanes>(sum);
    fold<4, 32, 1>(dot);
    float* const mine = shared + (turn % 2 * block_warps() + warp_index()) * warp_words;
    constexpr int same = groups > sums ? groups / sums : 1;  // groups that end with the same sum
    SAMESTATE_UNROLL
    for (int i = 0; i < folded; ++i) {
      if (group % same == 0) mine[lane * sums + group / same * folded + i] = sum[i];
    }
    if (lane_index() % 8 == 0) mine[lanes * sums + lane_index() / 8] = dot[0];
  }

  /// Over the warps.
  SAMESTATE_DEVICE void gather_sums() {
    clear_sums();
    const int warps = block_warps();
    const float* const from = shared + turn % 2 * warps * warp_words;
    if constexpr (tile.columns * sizeof(State) <= 64) {  // few registers hold the state: all sums at once
      SAMESTATE_UNROLL
      for (int w = 0; w < kMostWarps; ++w) {
        if (w < warps) add_sums(from + w * warp_words);
      }
    } else {
      SAMESTATE_NO_UNROLL
      for (int w = 0; w < warps; ++w) add_sums(from + w * warp_words);
    }
  }

  SAMESTATE_DEVICE void add_sums(const float* from) {
    constexpr int quad = sums < 4 ? sums : 4;
    SAMESTATE_UNROLL
    for (int i = 0; i < sums; i += quad) {
      const auto part = *reinterpret_cast<const Vector<float, quad>*>(from + lane * sums + i);
      SAMESTATE_UNROLL
      for (int e = 0; e < quad; ++e) sum[i + e] += element(part, e);
    }
    const Quad part = load_quad(from + lanes * sums);
    dot[0] += part.x;
    dot[1] += part.y;
    dot[2] += part.z;
  }

  /// u = beta (v - alpha S^T k), o = scale (alpha S^T q + u (k . q)); then S <- alpha S + k u^T. Of normalised
  /// keys r k every k here is one without r.
  SAMESTATE_DEVICE void update() {
    const float norm_k = p.l2norm ? fast_inverse_root(dot[1] + 1e-6F) : 1.0F;
    const float norm_q = p.l2norm ? fast_inverse_root(dot[2] + 1e-6F) : 1.0F;
    const float kq = dot[0] * norm_k * norm_q;
    SAMESTATE_UNROLL
    for (int c = 0; c < width; ++c) {
      u[c] = element(v, c);
      if constexpr (delta) u[c] = beta * (u[c] - alpha * (norm_k * sum[width + c]));
      o[c] = p.scale * fused(u[c], kq, alpha * (norm_q * sum[c]));
      u[c] *= norm_k;
    }
    SAMESTATE_UNROLL
    for (int r = 0; r < rows; ++r) {
      keep_as_stored(S[r]);
      const float key = at(k, r);
      float s[width];
      SAMESTATE_UNROLL
      for (int c = 0; c < width; ++c) s[c] = fused(key, u[c], alpha * element(S[r], c));
      S[r] = narrowed<State>(s);
    }
  }

  SAMESTATE_DEVICE void store_output(std::int64_t t) const {
    if (warp_index() > 0 || group > 0 || !inside) return;
    const std::int64_t token = (first_token + t) * p.Hv + head;
    store_global(reinterpret_cast<Vector<Operand, width>*>(p.o + token * p.dv + column),
                 narrowed<Operand>(o));
  }

  SAMESTATE_DEVICE void store_state() const {
    State* const to = p.final_state + state;
    const int end = p.final_state && inside ? p.dk : 0;
    const int stride =
        recomputed(step * p.dv);  // else every row's offset stays in registers from its load on
    SAMESTATE_UNROLL
    for (int r = 0; r < rows; ++r) {
      if (row + r * step < end)
        store_result<tile.once>(reinterpret_cast<StateVector*>(to + r * stride), S[r]);
    }
  }
};

/// One tile of one head of one sequence by one block of (dk + 31) / 32 warps, `block` a DecodeBlock. Another
/// may follow at once.
template <class Block>
SAMESTATE_DEVICE void decode(Block& block, std::int64_t sequence, std::int64_t head, int tile) {
  block.place(sequence, head, tile);
  if (Block::trigger == Trigger::start) let_next_grid_start();
  if (!block.p.settled) block.wait_for_inputs();
  block.load_state();
  block.wait_for_inputs();
  block.find_sequence(sequence);
  for (std::int64_t t = 0; t < block.tokens; ++t) {
    block.load_token(t);
    if (Block::trigger == Trigger::loaded && t + 1 == block.tokens) let_next_grid_start();
    block.read_state();
    block.share_sums();
    block_barrier();
    block.gather_sums();
    block.update();
    block.store_output(t);
    ++block.turn;  // the other half: this one is written again after the next barrier, when all have read it
  }
  block.store_state();
}

}  // namespace samestate::cuda

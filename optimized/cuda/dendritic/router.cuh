#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "optimized/cuda/dendritic/dendritic.cuh"
#include "optimized/cuda/host/grid.cuh"

/// The router of dendritic branches for many rows and few candidates: a block keeps the matrix in shared memory, each lane copies the
/// pieces of rows that it will multiply itself some steps ahead, and then chooses for one row.
namespace samestate::cuda {

/// Takes rows of whole 16 bytes and at most `slots` candidates. A step of a warp is four pieces a lane: of 32 rows what four lanes have in
/// 16 bytes each, or of 16 rows twice that, whole lines of the cache. Lane l has rows l / 4 + 8 r and chooses for row l / 4 + 8 (l % 4).
/// In 16 bit the products are the matrix unit's, whose operands are these pieces as they came: the order of columns in a sum is
/// anybody's, if both factors have it.
template <class Operand, int slots>
struct StagedRoutes {
  using Parameters = RouterParameters<Operand>;
  static constexpr bool kUnit = sizeof(Operand) == 2;  ///< multiplies by the matrix unit
  static constexpr int kThreads = 256, kRowsOfLane = 4, kLanes = 4;
  static constexpr int kPieces = 4;  ///< per lane and step
  static constexpr int kResidentBlocks = kUnit || slots <= 8 ? 2 : 1;
  static constexpr int n = 16 / static_cast<int>(sizeof(Operand));
  static constexpr int kGroup = kLanes * n;  ///< columns that four lanes have in a piece each
  static constexpr int kGroups = kUnit ? 2 : 1, kColumns = kGroups * kGroup;  ///< per step
  static constexpr int kAhead = kUnit ? 4 : 3;  ///< steps that a ring holds; of fp32 a fourth is slower
  static constexpr int kCandidates = 8;         ///< per tile of the matrix unit
  static constexpr int kTiles = slots / kCandidates;
  static constexpr std::size_t kMostShared = 112 * 1024;  ///< two blocks a multiprocessor
  static_assert(slots % kCandidates == 0);
  using Piece = Vector<Operand, n>;
  using Logits = float[slots];

  static SAMESTATE_HOST_DEVICE int branches(const Parameters& p) { return p.shared + p.candidates; }
  static SAMESTATE_HOST_DEVICE int steps(const Parameters& p) { return (p.width + kColumns - 1) / kColumns; }
  static constexpr std::size_t kRingBytes = std::size_t{kThreads} * kAhead * kPieces * sizeof(Piece);
  /// Returns the bytes of the matrix, in its own format or in fp32, with zeros after the last candidate and
  /// column.
  static SAMESTATE_HOST_DEVICE std::size_t matrix_bytes(const Parameters& p) {
    return sizeof(Operand) * slots * kColumns * static_cast<std::size_t>(steps(p));
  }
  /// The rings, the matrix, then for each warp its 32 rows of one output.
  static std::size_t shared_bytes(const Parameters& p) {
    return kRingBytes + matrix_bytes(p) + sizeof(Operand) * kThreads * static_cast<std::size_t>(branches(p));
  }
  static bool takes(const Parameters& p) {
    return p.width % n == 0 && p.candidates <= slots && shared_bytes(p) <= kMostShared;
  }
  /// Launches only as many blocks as run at once, since every block first loads a matrix and waits for it.
  static void launch(const Parameters& p, cudaStream_t stream) {
    constexpr unsigned kBlocks = kResidentBlocks * 132;
    cuda::launch<StagedRoutes>(std::min(blocks_of(p.rows, kThreads), kBlocks), shared_bytes(p), p, stream);
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    auto* const rings = reinterpret_cast<Piece*>(shared);
    auto* const matrix = reinterpret_cast<Piece*>(shared + kRingBytes);
    Operand* const staged = reinterpret_cast<Operand*>(shared + kRingBytes + matrix_bytes(p)) +
                            std::int64_t{32} * warp_index() * branches(p);
    Rows rows(p, rings + warp_index() * kAhead * kPieces * 32 + lane_index());
    SAMESTATE_UNROLL
    for (int i = 0; i < kAhead - 1; ++i) rows.ask();
    stage_matrix(p, matrix);
    block_barrier();
    for (std::int64_t i = block_index() * kThreads; i < p.rows; i += grid_blocks() * kThreads) {
      const std::int64_t first = i + 32 * warp_index();
      if (first >= p.rows) break;
      float logit[slots];
      find_logits(p, matrix, rows, logit);
      choose(p, first, logit, staged);
    }
    copies_wait<0>();  // what was asked for behind the last row
  }

 private:
  static SAMESTATE_DEVICE int part() { return lane_index() % kLanes; }
  /// Returns the one of a warp's 32 rows for which this lane chooses.
  static SAMESTATE_DEVICE int chosen_row() { return lane_index() / kLanes + 8 * part(); }

  /// This lane's pieces of its rows, in a ring of its own: it copies what it reads, so that it meets no other.
  struct Rows {
    const Parameters& p;
    Piece* const ring;
    std::int64_t row;  ///< asked for next, the first of this lane, from `column` on
    int column;
    int half = 0;  ///< which half of the warp's rows, if a step has 16
    int in = 0, out = 0;

    SAMESTATE_DEVICE Rows(const Parameters& parameters, Piece* of_lane)
        : p(parameters),
          ring(of_lane),
          row(block_index() * kThreads + 32 * warp_index() + lane_index() / kLanes),
          column(part() * n) {}

    SAMESTATE_DEVICE void ask() {
      SAMESTATE_UNROLL
      for (int i = 0; i < kPieces; ++i) {
        const std::int64_t r = row + 8 * (i % (kPieces / kGroups));
        const int c = column + i / (kPieces / kGroups) * kGroup;
        Piece* const to = ring + (in * kPieces + i) * 32;
        if (r < p.rows && c < p.width)
          copy_async_16(to, p.q + r * p.width + c);
        else
          *to = {};
      }
      copies_commit();
      in = in + 1 == kAhead ? 0 : in + 1;
      column += kColumns;
      if (column - part() * n < p.width) return;
      column = part() * n;
      if (kUnit && half == 0) {
        half = 1;
        row += 16;
      } else {
        row += grid_blocks() * kThreads - 16 * half;
        half = 0;
      }
    }
    /// The oldest step, whose place is asked for again by the ask() after the next.
    SAMESTATE_DEVICE void take(Piece (&q)[kPieces]) {
      copies_wait<kAhead - 2>();
      SAMESTATE_UNROLL
      for (int i = 0; i < kPieces; ++i) q[i] = ring[(out * kPieces + i) * 32];
      out = out + 1 == kAhead ? 0 : out + 1;
    }
  };

  /// Stages the matrix by groups of columns and tiles, one piece per lane of the matrix unit and column l / 4
  /// of its tile; otherwise as [slots][columns].
  static SAMESTATE_DEVICE void stage_matrix(const Parameters& p, Piece* matrix) {
    for (int i = thread_index(); i < slots * kLanes * kGroups * steps(p); i += kThreads) {
      const int of_group = i % (slots * kLanes), of_row = i % (kLanes * steps(p));
      const int candidate = kUnit ? of_group / kLanes : i / (kLanes * steps(p));
      const int column = kUnit ? i / (slots * kLanes) * kGroup + of_group % kLanes * n : of_row * n;
      matrix[i] = load_settled<false>(
          reinterpret_cast<const Piece*>(p.router + static_cast<std::int64_t>(candidate) * p.width + column),
          candidate < p.candidates && column < p.width);
    }
  }

  /// Finds the logits of this lane's row.
  static SAMESTATE_DEVICE void find_logits(const Parameters& p, const Piece* matrix, Rows& rows,
                                           Logits& logit) {
    if constexpr (kUnit) {
      float sum[kTiles][2][4] = {};
      SAMESTATE_UNROLL
      for (int half = 0; half < 2; ++half) {
        SAMESTATE_NO_UNROLL
        for (int step = 0; step < steps(p); ++step) {
          Piece q[kPieces];
          rows.take(q);
          rows.ask();
          SAMESTATE_UNROLL
          for (int group = 0; group < kGroups; ++group) {
            SAMESTATE_UNROLL
            for (int tile = 0; tile < kTiles; ++tile) {
              const Piece w = matrix[((step * kGroups + group) * kTiles + tile) * 32 + lane_index()];
              multiply_half(q[2 * group], q[2 * group + 1], w, 0, sum[tile][half]);
              multiply_half(q[2 * group], q[2 * group + 1], w, 1, sum[tile][half]);
            }
          }
        }
      }
      SAMESTATE_UNROLL
      for (int tile = 0; tile < kTiles; ++tile) hand_over_pairs(sum[tile], logit + tile * kCandidates);
    } else {
      float sum[kRowsOfLane][slots] = {};
      SAMESTATE_NO_UNROLL
      for (int step = 0; step < steps(p); ++step) {
        Piece q[kPieces];
        rows.take(q);
        rows.ask();
        const float* const columns = reinterpret_cast<const float*>(matrix) + step * kColumns + part() * n;
        SAMESTATE_UNROLL
        for (int c = 0; c < slots; ++c) {
          const Quad w = load_quad(columns + c * steps(p) * kColumns);
          SAMESTATE_UNROLL
          for (int r = 0; r < kRowsOfLane; ++r) sum[r][c] = add_products(q[r], w, sum[r][c]);
        }
      }
      // Two lanes share their halves of four rows, then of two: each ends with the whole of one.
      const bool high = part() >= 2, odd = part() % 2 != 0;
      SAMESTATE_UNROLL
      for (int c = 0; c < slots; ++c) {
        const float low_row = (high ? sum[2][c] : sum[0][c]) + shuffle_xor(high ? sum[0][c] : sum[2][c], 2);
        const float high_row = (high ? sum[3][c] : sum[1][c]) + shuffle_xor(high ? sum[1][c] : sum[3][c], 2);
        logit[c] = (odd ? high_row : low_row) + shuffle_xor(odd ? low_row : high_row, 1);
      }
    }
  }

  static SAMESTATE_DEVICE float add_products(const Piece& q, const Quad& w, float sum) {
    sum = fused(element(q, 0), w.x, sum);
    sum = fused(element(q, 1), w.y, sum);
    sum = fused(element(q, 2), w.z, sum);
    return fused(element(q, 3), w.w, sum);
  }

  /// Four of the eight columns of each of a step's lanes, rows 8 apart.
  static SAMESTATE_DEVICE void multiply_half(const Piece& low, const Piece& high, const Piece& w, int half,
                                             float (&sum)[4]) {
    const std::uint32_t a[4] = {low.words[2 * half], high.words[2 * half], low.words[2 * half + 1],
                                high.words[2 * half + 1]};
    multiply_bf16(sum, a, w.words[2 * half], w.words[2 * half + 1]);
  }

  /// Four lanes have two candidates each of four rows, r of which is sums[r / 2][2 (r % 2) + {0, 1}]; afterwards each has the eight of
  /// the row of its number.
  static SAMESTATE_DEVICE void hand_over_pairs(const float (&sums)[2][4], float* logit) {
    const bool high = part() >= 2, odd = part() % 2 != 0;
    SAMESTATE_UNROLL
    for (int e = 0; e < 2; ++e) {
      // Rows 2 (part / 2) and the next one: of this lane's candidates, and of those of the lane two away.
      const float mine[2] = {high ? sums[1][e] : sums[0][e], high ? sums[1][2 + e] : sums[0][2 + e]};
      const float theirs[2] = {shuffle_xor(high ? sums[0][e] : sums[1][e], 2),
                               shuffle_xor(high ? sums[0][2 + e] : sums[1][2 + e], 2)};
      // Candidates of lanes 0 and 1, then of 2 and 3; here those of the lane's own parity, there of the other.
      const float low[2] = {high ? theirs[0] : mine[0], high ? theirs[1] : mine[1]};
      const float upper[2] = {high ? mine[0] : theirs[0], high ? mine[1] : theirs[1]};
      const float own_low = odd ? low[1] : low[0], own_upper = odd ? upper[1] : upper[0];
      const float other_low = shuffle_xor(odd ? low[0] : low[1], 1);
      const float other_upper = shuffle_xor(odd ? upper[0] : upper[1], 1);
      logit[e] = odd ? other_low : own_low;
      logit[2 + e] = odd ? own_low : other_low;
      logit[4 + e] = odd ? other_upper : own_upper;
      logit[6 + e] = odd ? own_upper : other_upper;
    }
  }

  /// The `routed` largest, of equals the one with the lower number, and weights that sum to one (route()).
  static SAMESTATE_DEVICE void choose(const Parameters& p, std::int64_t first, const float (&logit)[slots],
                                      Operand* staged) {
    float weight[slots] = {};
    std::uint32_t taken = 0;
    float largest = 0.0F, sum = 0.0F;
    for (int rank = 0; rank < p.routed; ++rank) {
      int best = p.candidates;
      float most = 0.0F;
      SAMESTATE_UNROLL
      for (int c = 0; c < slots; ++c) {
        if (c < p.candidates && (taken >> c & 1U) == 0 && (best == p.candidates || logit[c] > most))
          best = c, most = logit[c];
      }
      if (rank == 0) largest = most;
      const float share = exponential(most - largest);
      sum += share;
      taken |= 1U << best;
      SAMESTATE_UNROLL
      for (int c = 0; c < slots; ++c) weight[c] = c == best ? share : weight[c];
    }
    const float parts = (p.shared > 0 ? 1.0F : 0.0F) + (p.routed > 0 ? 1.0F : 0.0F);
    const float inverse = 1.0F / (sum * parts);
    Operand* const row = staged + chosen_row() * branches(p);
    for (int e = 0; e < p.shared; ++e)
      row[e] = narrow<Operand>(1.0F / (static_cast<float>(p.shared) * parts));
    SAMESTATE_UNROLL
    for (int c = 0; c < slots; ++c) {
      if (c < p.candidates)
        row[p.shared + c] = narrow<Operand>((taken >> c & 1U) != 0 ? weight[c] * inverse : 0.0F);
    }
    write_rows(p, first, staged, p.omega);
    for (int e = 0; e < p.shared; ++e) row[e] = narrow<Operand>(1.0F);
    SAMESTATE_UNROLL
    for (int c = 0; c < slots; ++c) {
      if (c < p.candidates) row[p.shared + c] = narrow<Operand>((taken >> c & 1U) != 0 ? 1.0F : 0.0F);
    }
    write_rows(p, first, staged, p.mask);
  }

  /// The warp's rows are contiguous there too.
  static SAMESTATE_DEVICE void write_rows(const Parameters& p, std::int64_t first, const Operand* staged,
                                          Operand* out) {
    const std::int64_t rows = p.rows - first < 32 ? p.rows - first : 32;
    const auto elements = static_cast<int>(rows) * branches(p);
    Operand* const to = out + first * branches(p);
    warp_barrier();
    for (int i = lane_index() * n; i < elements; i += 32 * n) {
      using Elements = Vector<Operand, n>;
      if (i + n <= elements) {
        store_result<false>(reinterpret_cast<Elements*>(to + i),
                            *reinterpret_cast<const Elements*>(staged + i));
      } else {
        SAMESTATE_UNROLL
        for (int e = 0; e < n - 1; ++e) {
          if (i + e < elements) to[i + e] = staged[i + e];
        }
      }
    }
    warp_barrier();
  }
};

}  // namespace samestate::cuda

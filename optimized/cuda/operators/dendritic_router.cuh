#pragma once

#include <cstddef>
#include <cstdint>

#include "optimized/cuda/operators/dendritic.cuh"
#include "optimized/cuda/operators/grid.cuh"

/// The router of dendritic branches for many rows and few candidates: a block keeps the matrix in shared memory, four lanes read
/// four rows, so that what they read of the matrix serves four, and each lane then chooses for one.
namespace samestate::cuda {

/// Takes rows of whole 16 bytes and at most `slots` candidates.
template <class Operand, int slots>
struct StagedRoutes {
  using Parameters = RouterParameters<Operand>;
  static constexpr int kThreads = 256, kWarps = kThreads / 32, kRowsOfLane = 4, kLanes = 4;
  static constexpr int kResidentBlocks = slots <= 8 ? 2 : 1;
  static constexpr int n = 16 / static_cast<int>(sizeof(Operand));
  static constexpr std::size_t kMostShared = 96 * 1024;

  static SAMESTATE_HOST_DEVICE int branches(const Parameters& p) { return p.shared + p.candidates; }
  /// The matrix in fp32, rows of zeros up to `slots`; then for each warp its 32 rows of one output.
  static std::size_t shared_bytes(const Parameters& p) {
    return static_cast<std::size_t>(slots) * p.width * sizeof(float) +
           static_cast<std::size_t>(kThreads) * branches(p) * sizeof(Operand);
  }
  static bool takes(const Parameters& p) {
    return p.width % n == 0 && p.candidates <= slots && shared_bytes(p) <= kMostShared;
  }
  static void launch(const Parameters& p, cudaStream_t stream) {
    cuda::launch<StagedRoutes>(blocks_of(p.rows, kThreads), shared_bytes(p), p, stream);
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    float* const router = reinterpret_cast<float*>(shared);
    for (int i = thread_index(); i < slots * p.width; i += kThreads)
      router[i] = i < p.candidates * p.width ? widen(p.router[i]) : 0.0F;
    block_barrier();
    Operand* const mine =
        reinterpret_cast<Operand*>(router + slots * p.width) + std::int64_t{32} * warp_index() * branches(p);
    for (std::int64_t i = block_index() * kThreads; i < p.rows; i += grid_blocks() * kThreads) {
      const std::int64_t first = i + 32 * warp_index();
      if (first >= p.rows) break;
      float logit[slots];
      find_logits(p, router, first, logit);
      choose(p, first, logit, mine);
    }
  }

 private:
  /// Those of row first + lane.
  static SAMESTATE_DEVICE void find_logits(const Parameters& p, const float* router, std::int64_t first,
                                           float (&logit)[slots]) {
    const int part = lane_index() % kLanes;
    const std::int64_t row = first + lane_index() / kLanes * kRowsOfLane;
    float sum[kRowsOfLane][slots] = {};
    for (int at = part * n; at < p.width; at += kLanes * n) {
      Vector<Operand, n> q[kRowsOfLane];
      SAMESTATE_UNROLL
      for (int r = 0; r < kRowsOfLane; ++r)
        q[r] = load_settled<true>(reinterpret_cast<const Vector<Operand, n>*>(p.q + (row + r) * p.width + at),
                                  row + r < p.rows);
      SAMESTATE_UNROLL
      for (int e = 0; e < n; e += 4) {
        SAMESTATE_UNROLL
        for (int c = 0; c < slots; ++c) {
          const Quad w = load_quad(router + c * p.width + at + e);
          SAMESTATE_UNROLL
          for (int r = 0; r < kRowsOfLane; ++r) {
            sum[r][c] = fused(element(q[r], e), w.x, sum[r][c]);
            sum[r][c] = fused(element(q[r], e + 1), w.y, sum[r][c]);
            sum[r][c] = fused(element(q[r], e + 2), w.z, sum[r][c]);
            sum[r][c] = fused(element(q[r], e + 3), w.w, sum[r][c]);
          }
        }
      }
    }
    // Two lanes share their halves of four rows, then of two: each ends with the whole of one.
    const bool high = part >= 2, odd = part % 2 != 0;
    SAMESTATE_UNROLL
    for (int c = 0; c < slots; ++c) {
      const float low_row = (high ? sum[2][c] : sum[0][c]) + shuffle_xor(high ? sum[0][c] : sum[2][c], 2);
      const float high_row = (high ? sum[3][c] : sum[1][c]) + shuffle_xor(high ? sum[1][c] : sum[3][c], 2);
      logit[c] = (odd ? high_row : low_row) + shuffle_xor(odd ? low_row : high_row, 1);
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
    Operand* const row = staged + lane_index() * branches(p);
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

  /// The warp's rows, which lie one behind the other there too.
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

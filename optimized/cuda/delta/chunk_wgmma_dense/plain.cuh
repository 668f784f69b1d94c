#pragma once

#include "optimized/cuda/delta/chunk_wgmma_dense/state.cuh"

namespace samestate::cuda {

/// The parts in plain order, for a warpgroup that shares its SM's tensor unit with another: while one waits,
/// the other's products run, and one's arithmetic next to the other's products is nearly free. It takes 184
/// registers.
template <class SharedMemory, bool delta, class Output>
struct PlainState : StateParts<SharedMemory, delta, Output> {
  using Base = StateParts<SharedMemory, delta, Output>;
  using Base::s, Base::X;

  SAMESTATE_DEVICE void run(int chunks) {
    SAMESTATE_NO_UNROLL
    for (int n = 0; n < chunks; ++n) {
      s.key_ring.wait_full(n);
      this->round_state(0);
      this->round_state(1);
      if constexpr (delta) {
        this->multiply_keys(n, 0);
        this->multiply_keys(n, 1);
      }
      s.query_ring.wait_full(n);
      this->multiply_queries(n);
      products_wait<0>();  // the registers of S rounded are wanted
      s.query_ring.release(n);
      s.value_ring.wait_full(n);
      s.made_ring.wait_full(n);
      if constexpr (delta) {
        std::uint32_t R[4][4];
        this->residual(n, R);
        s.value_ring.release(n);
        this->multiply_inverse(n, R);
      }
      this->scale_output(n);
      if constexpr (delta) products_wait<0>();
      std::uint32_t D[4][4];
      this->round_values(n, D);
      if constexpr (!delta) s.value_ring.release(n);
      this->multiply_update(n, 0, D, X);
      this->multiply_attention(n);
      const float over = this->made(n).over[0];
      products_wait<1>();
      this->sum_state(0, X, over);
      this->multiply_update(n, 1, D, X);
      products_wait<0>();
      s.key_ring.release(n);
      s.made_ring.release(n);
      this->sum_state(1, X, over);
      this->store_output(n);
    }
  }
};

}  // namespace samestate::cuda

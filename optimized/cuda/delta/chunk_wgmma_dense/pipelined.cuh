#pragma once

#include "optimized/cuda/delta/chunk_wgmma_dense/state.cuh"

namespace samestate::cuda {

/// The parts in the order for a warpgroup that is alone with its SM's tensor unit. The unit's work in chunk n: S Q (8
/// products) | U, keys 0-63 (4) | U, keys 64-127 (4) | X of chunk n + 1, keys 0-63 (4) | X, keys 64-127 (4) | P V' (4)
/// | V' of chunk n + 1 (4). Every piece of arithmetic has another product in flight above it.
///
/// Products in flight may not cross a loop's back edge: it lies where V' is readable.
template <class SharedMemory, bool delta, class Output>
struct PipelinedState : StateParts<SharedMemory, delta, Output> {
  using Base = StateParts<SharedMemory, delta, Output>;
  using Base::s, Base::X;

  SAMESTATE_DEVICE void run(int chunks) {
    if (chunks == 0) return;
    int first = 0;
    if constexpr (!delta && SharedMemory::kSegments) {
      first = uniform(this->first_chunk);
      SAMESTATE_NO_UNROLL
      for (int n = 0; n < first; ++n) absorb(n);
    }
    wait_inputs(first);
    this->round_state(0);
    this->round_state(1);
    if constexpr (delta) {
      this->multiply_keys(0, 0);
      this->multiply_keys(0, 1);
      new_values(0, [] { products_wait<0>(); });
      products_wait<0>();
    }
    SAMESTATE_NO_UNROLL
    for (int n = first; n < chunks - 1; ++n) {
      float U[32];
      update(n, U);
      const float over = this->made(n).over[0];
      if constexpr (!delta) this->multiply_attention(n);
      wait_inputs(n + 1);
      products_wait<delta ? 1 : 2>();
      this->sum_state(0, X, over);
      this->round_state(0);
      if constexpr (delta) this->multiply_keys(n + 1, 0);
      products_wait<1>();
      s.key_ring.release(n);
      this->sum_state(1, U, over);
      this->round_state(1);
      if constexpr (delta) {
        this->multiply_keys(n + 1, 1);
        this->multiply_attention(n);
        new_values(n + 1, [] { products_wait<1>(); });
        products_wait<1>();
        s.made_ring.release(n);
        this->store_output(n);
        products_wait<0>();
      } else {
        products_wait<0>();
        s.made_ring.release(n);
        this->store_output(n);
      }
    }
    const int n = chunks - 1;
    float U[32];
    update(n, U);
    const float over = this->made(n).over[0];
    this->multiply_attention(n);
    products_wait<0>();
    this->sum_state(0, X, over);
    this->sum_state(1, U, over);
    s.key_ring.release(n);
    s.made_ring.release(n);
    this->store_output(n);
  }

 private:
  /// S of chunk n alone.
  SAMESTATE_DEVICE void absorb(int n) {
    std::uint32_t D[4][4];
    float U[32];
    Barrier::wait_all(s.key_ring.full[s.key_ring.stage(n)], s.key_ring.phase(n),
                      s.made_ring.full[s.made_ring.stage(n)], s.made_ring.phase(n),
                      s.value_ring.full[s.value_ring.stage(n)], s.value_ring.phase(n));
    this->round_values(n, D);
    this->multiply_update(n, 0, D, X);
    this->multiply_update(n, 1, D, U);
    s.value_ring.release(n);
    const float over = this->made(n).over[0];
    products_wait<1>();
    s.made_ring.release(n);
    this->sum_state(0, X, over);
    products_wait<0>();
    s.key_ring.release(n);
    this->sum_state(1, U, over);
  }

  SAMESTATE_DEVICE void wait_inputs(int n) {
    const int m = this->of_output(n);
    Barrier::wait_all(s.key_ring.full[s.key_ring.stage(n)], s.key_ring.phase(n),
                      s.query_ring.full[s.query_ring.stage(m)], s.query_ring.phase(m),
                      s.value_ring.full[s.value_ring.stage(n)], s.value_ring.phase(n));
  }

  /// Issues V' of chunk n, whose S^T K^T is in X after `wait_X`.
  template <class Wait>
  SAMESTATE_DEVICE void new_values(int n, Wait&& wait_X) {
    float bV[32];
    std::uint32_t R[4][4];
    s.made_ring.wait_full(n);
    this->weigh_values(n, bV);
    wait_X();
    this->residual(n, bV, R);
    this->multiply_inverse(n, R);
    s.value_ring.release(n);
  }

  /// Issues O = S Q and U, the first half of whose keys takes X's registers; O is scaled.
  SAMESTATE_DEVICE void update(int n, float (&U)[32]) {
    std::uint32_t D[4][4];
    this->multiply_queries(n);
    if constexpr (!delta) s.made_ring.wait_full(n);
    this->round_values(n, D);
    if constexpr (!delta) s.value_ring.release(n);
    this->multiply_update(n, 0, D, X);
    products_wait<1>();  // the registers of S rounded are wanted for the second half
    this->multiply_update(n, 1, D, U);
    s.query_ring.release(this->of_output(n));
    this->scale_output(n);
  }
};

}  // namespace samestate::cuda

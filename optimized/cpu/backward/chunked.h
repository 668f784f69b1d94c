#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "optimized/backward_call.h"
#include "optimized/cpu/backward/state_sweep.h"
#include "optimized/cpu/block.h"
#include "optimized/cpu/operators/matrix_unit.h"

/// The backward pass of the recurrent family in chunks on the CPU, for all systems from one source. Per chunk, with G the
/// sums of g, E_ij = e^{G_i - G_j} for j <= i, A = strict(beta K K^T o E), T = (I + A)^-1, W = T beta e^G K, N = T beta V - W
/// S, P = scale Q K^T o E, and D the cotangent of the state that the chunk leaves:
///   dN = P^T dO + e^{G_C - G} (K D);  dW = -dN S^T
///   D of the chunk before = e^{G_C} D + scale (e^G Q)^T dO - W^T dN
///   dP = scale (dO N^T) o E;  dQ = scale e^G (dO S^T) + dP K;  dK' = e^{G_C - G} (N D^T) + dP^T Q
///   dT = strict(dN (beta V)^T + dW (beta e^G K)^T);  dM = -strict(T^T dT T^T) o E
///   dV = beta T^T dN;  dK = dK' + beta e^G (T^T dW) + beta dM K + dM^T (beta K)
///   dbeta = (T^T dN) . V + e^G (T^T dW) . K + (dM K) . K, row by row
///   dG = Q . dQ - K . dK' + (row - column sums of dM o beta K K^T) + beta e^G (T^T dW) . K; at the last token also
///        e^{G_C} <S, D> and the sum of e^{G_C - G} K . (N D^T);  dg_t = sum_{i >= t} dG_i.
/// Without a delta term N = V, dV = dN, and nothing goes through T. From a reset on, e^g = 0, the dG of its chunk add up to
/// zero, so its dg is 0 up to their rounding, as in other kernels of this form; the other gradients of the tokens before it do
/// not depend on what follows. The decays are e^x within one ulp under every contract.
/// Under a contract with 16-bit inputs a value is rounded to that format where BackwardPoint says so, and under tf32 the
/// matrix unit rounds the operands of every product; sums, the carried state and D, and everything that leads to dg, dbeta
/// and the gradient of the initial state stay in fp32. States before chunks are kept about sqrt(T / chunk) chunks apart.
namespace samestate::cpu {

/// The places where the chunked backward pass stores a result or multiplies matrices. At a point with "a product" nothing is
/// stored, and points with "fp32" are never rounded by this kernel; a class that derives from it may round there.
enum class BackwardPoint : std::uint8_t {
  key_products,        ///< K K^T, a product
  T,                   ///< the inverse, as the forward pass saves it
  beta_v,              ///< beta V
  beta_k,              ///< beta e^G K
  U,                   ///< T beta V
  W,                   ///< T beta e^G K
  state_operand,       ///< S as an operand
  read_by_W,           ///< W S, a product
  v_new,               ///< N as an operand
  v_decayed,           ///< e^{G_C - G} N
  state,               ///< K^T e^{G_C - G} N, a product
  scores,              ///< Q K^T, a product
  P,                   ///< scale Q K^T o E
  dv_local,            ///< P^T dO
  dh_operand,          ///< D as an operand
  dv_carried,          ///< K D, a product
  dv_new,              ///< dN
  q_decayed,           ///< (e^G Q)^T dO, a product
  dh_of_W,             ///< W^T dN, a product
  dw,                  ///< dW
  dS_score,            ///< dP
  dq_of_state,         ///< dO S^T, a product
  dq_of_scores,        ///< dP K, a product
  dq_head,             ///< dQ of a value head
  dk_of_state,         ///< N D^T, a product
  dk_of_scores,        ///< dP^T Q, a product
  dk_head,             ///< dK' of a value head
  dT,                  ///< dT
  dT_T,                ///< dT T^T
  dA,                  ///< dM
  dv_of_T,             ///< T^T dN, a product
  dk_of_T,             ///< T^T dW, a product
  dk_of_A,             ///< dM K, a product
  dk_of_A_transposed,  ///< dM^T (beta K), a product
  beta_key,            ///< beta K
  dk_correction,       ///< the part of dK through W, and then its sum with that through A
  dG_last,             ///< S o D, and its sum; fp32
  dG_of_A,             ///< dM o beta K K^T; fp32
  dG,                  ///< the gradients of the sums of g; fp32
  dg,                  ///< as it is written; fp32
  dbeta,               ///< as it is written; fp32
  d_initial_state,     ///< as it is written; fp32
  dv,                  ///< dV of a value head
  group_sum,           ///< a sum over the value heads of a key head, if it has several
  dk,                  ///< dK' plus its correction
  y,                   ///< l2-normalised q and k as the gradient of the norm reads them
  dy,                  ///< their cotangents
};

/// Evaluates one key head of one sequence with its value heads, chunk by chunk. Every step is a virtual function, so that a
/// class that derives from it can change one.
class ChunkedBackward {
 public:
  ChunkedBackward(const calls::System& system, const BackwardArguments& arguments, const Contract& contract);
  virtual ~ChunkedBackward() = default;
  ChunkedBackward(const ChunkedBackward&) = delete;
  ChunkedBackward& operator=(const ChunkedBackward&) = delete;

  void run(const BackwardGroup& group);

 protected:
  // Rounding, and products of matrices.
  /// The format that a result is stored in at a point.
  [[nodiscard]] virtual Format format_at(BackwardPoint point) const;
  /// c = a b.
  virtual void multiply(const Block& a, const Block& b, Block& c, BackwardPoint point) const;
  void multiply_by_transposed(const Block& a, const Block& b, Block& c, BackwardPoint point);  ///< c = a b^T
  void multiply_transposed(const Block& a, const Block& b, Block& c, BackwardPoint point);     ///< c = a^T b
  void store(Block& x, BackwardPoint point) const;  ///< rounds x in place

  // One value head.
  virtual void run_head(const BackwardHead& head);
  virtual void load_final_cotangent(const BackwardHead& head);
  virtual void write_initial_cotangent(const BackwardHead& head);
  virtual void reverse_chunk(const BackwardHead& head, std::int64_t chunk);

  // A chunk of the forward pass, evaluated again from S_.
  void forward_chunk(const BackwardHead& head, std::int64_t chunk);
  virtual void load_chunk(const BackwardHead& head, std::int64_t first, std::int64_t length);
  virtual void decays();
  virtual void inverse();                            ///< K K^T and T
  virtual void corrected_values();                   ///< beta V, beta e^G K, W and N
  virtual void next_state();                         ///< S_ after the chunk
  void mask(Block& x, std::int64_t diagonal) const;  ///< x o E for j < i + diagonal, and zero elsewhere

  // The gradients that pass through scores and state.
  virtual void load_cotangent(const BackwardHead& head, std::int64_t first);  ///< dO
  virtual void value_cotangents();                                            ///< dN
  virtual void score_cotangents();                                            ///< dP
  virtual void query_gradient();                                              ///< dQ
  virtual void key_gradient();     ///< dK' and its part from the state
  virtual void state_cotangent();  ///< D of the chunk before

  // Those that pass through T and A, the delta correction.
  virtual void inverse_cotangent();      ///< dW and dM
  virtual void correction_products();    ///< T^T dN, T^T dW and dM K
  virtual void value_gradient();         ///< dV
  void key_correction();                 ///< the part of dK through T and A
  virtual void key_through_W();          ///< beta e^G (T^T dW)
  virtual void key_through_A_rows();     ///< beta dM K
  virtual void key_through_A_columns();  ///< dM^T (beta K)
  [[nodiscard]] virtual float beta_through_U(std::int64_t i) const;
  [[nodiscard]] virtual float beta_through_W(std::int64_t i) const;
  [[nodiscard]] virtual float beta_through_A(std::int64_t i) const;

  // The gradient of the sums of g, and of g.
  [[nodiscard]] virtual float gate_of_query(std::int64_t i) const;
  [[nodiscard]] virtual float gate_of_key(std::int64_t i) const;
  [[nodiscard]] virtual float gate_of_last_token();
  [[nodiscard]] virtual float gate_through_W(std::int64_t i) const;
  virtual void gate_through_A();
  virtual void sum_gates();  ///< dg from dG, in place

  // Outputs of a chunk, and the sums over the group.
  virtual void write_values(const BackwardHead& head, std::int64_t first);
  virtual void add_to_group(const Block& part, std::int64_t first, Block& sum) const;
  virtual void finish_keys(const BackwardGroup& group);
  void write_keys(const Rows<const float>& x, Block& gradient, const Rows<float>& to);

  const calls::System& system_;
  const Arguments& arguments_;  ///< those of the forward pass
  const Contract& contract_;
  MatrixUnit unit_;

  std::int64_t L_ = 0;                      ///< number of tokens in this chunk
  Block Q_, K_, V_;                         ///< [L, dk], [L, dk], [L, dv]
  std::vector<float> G_, beta_;             ///< [L]
  std::vector<float> from_start_, to_end_;  ///< [L] e^G and e^{G_C - G}
  std::vector<float> decayed_beta_;         ///< [L] beta e^G
  Block E_;                                 ///< [L, L] decays between tokens on and below the diagonal
  Block S_, S_operand_;                     ///< [dk, dv] the state before the chunk
  Block KK_, T_, beta_v_, beta_k_, W_;
  Block written_, N_;                          ///< [L, dv] N, and as an operand
  Block D_, D_operand_;                        ///< [dk, dv] the cotangent of the state after the chunk
  Block dO_, dN_;                              ///< [L, dv]
  Block dP_;                                   ///< [L, L]
  Block dQ_, dK_, dK_of_state_;                ///< [L, dk]
  Block dW_, dM_;                              ///< [L, dk], [L, L]
  Block of_U_, of_W_, of_A_;                   ///< T^T dN [L, dv], T^T dW and dM K [L, dk]
  Block dV_, dK_correction_, dK_through_A_;    ///< [L, dv], [L, dk], [L, dk]
  std::vector<float> dG_;                      ///< [L]
  Block dQ_sum_, dK_sum_, dK_correction_sum_;  ///< [tokens, dk] over the value heads so far
  Block product_, operand_, transposed_;       ///< scratch

 private:
  StateSweep sweep_;
};

/// Makes the object that evaluates the heads of one thread.
using MakeChunkedBackward = std::function<std::unique_ptr<ChunkedBackward>(
    const calls::System& system, const BackwardArguments& arguments, const Contract& contract)>;

/// Runs a call with the tensors of calls::BackwardArguments. Throws Error if the views are inconsistent (checked_sizes) or
/// chunk < 1.
[[nodiscard]] Outcome run_chunked_backward_with(const MakeChunkedBackward& make, const calls::System& system,
                                                const KernelCall& call, const Contract& contract);

template <const calls::System& system>
[[nodiscard]] Outcome run_chunked_backward(const KernelCall& call, const Contract& contract) {
  const auto make = [](const auto&... arguments) { return std::make_unique<ChunkedBackward>(arguments...); };
  return run_chunked_backward_with(make, system, call, contract);
}

}  // namespace samestate::cpu

#pragma once

#include <cstdint>
#include <string>

/// The contract says what a kernel promises to round, where, and to which format (the numerics card of the
/// bounds). It is data without arithmetic that kernels and oracles share, so it is on floor 0 next to the
/// view. Kernels round with their own code (optimized/cpu/rounding.h), and so do the oracles.
namespace samestate {

/// A storage or operand format. At a rounding point, `none` says that this kernel has no such point, and
/// `fp32` that nothing is rounded there below the working precision. With `tf32x3` an operand is split into
/// two tf32 numbers, and all products of the parts but the smallest are summed (3xTF32).
enum class Format { none, fp64, fp32, tf32, tf32_truncated, bf16, fp16, tf32x3 };

/// How T = (I + A)^-1 is computed. substitution: forward substitution in fp32. block16: 16 x 16 substitution,
/// then merges whose operands are rounded to `inverse_operand`. neumann: Neumann doubling with the same
/// rounding. block8: 8 x 8 substitution and merges 8 -> 16 -> 32 -> 64, whose tf32 operands are rounded by an
/// integer addition of 0x1000 (ties away from zero) and whose sums are of the tensor-core kind.
enum class Inverse { substitution, block16, neumann, block8 };

/// fp32 sums in any order, or tensor-core sums: 16 terms added exactly, then truncated to fp32.
enum class Accumulator { fp32, tensor_core };

/// The order in which blocks are merged into T. pairwise: neighbours, then pairs of them, T21 = -(T22 A21)
/// T11. rows: one block row after the other, T_ij = -T_ii sum_{j <= m < i} A_im T_mj in one sum, and next to
/// the diagonal -(T_ii A_ij) T_jj.
enum class MergeOrder : std::uint8_t { pairwise, rows };

/// expf within one ulp, or ex2.approx(x * log2 e) with the product rounded to fp32.
enum class Exponential { exact, ex2 };

/// With ex2 in the chunked form, what is multiplied by log2 e: the difference G_i - G_j, each g before the
/// cumulative sum, or G.
enum class Log2e : std::uint8_t { difference, gate, sum };

/// Order of the fp32 cumulative sum of g inside a chunk. A bound takes the worse of the two where it can.
enum class Scan { sequential, tree };

/// How l2norm inside the kernel is applied; r = (sum x^2 + 1e-6)^-1/2 for each row of q or k. operand: x r is
/// multiplied, rounded to `qk`. factor: x itself is the operand, and r multiplies fp32 sums: A_ij is
/// multiplied by r_i r_j, beta e^G of the residual and e^{G_C - G} by r, P_ij by r^q_i r_j, and e^G of the
/// output by r^q. The recurrent form multiplies vectors and keeps x r in fp32. unrounded: x r is multiplied
/// and kept in fp32 until an operand rounds it.
enum class Norm { operand, factor, unrounded };

/// Which key head serves value head h: h / (Hv / Hk) (Qwen3-Next, FLA) or h mod Hk (the tiled map of ggml).
enum class HeadMap { interleaved, tiled };

/// Each field is one rounding point, named after the matrices of the chunked form of EQUATIONS 5.5:
///   A = strict_lower(beta K K^T o E), T = (I + A)^-1, U = T beta V, W = T beta e^G K, V' = U - W S,
///   P = Q K^T o E, O = scale (e^G Q S + P V'), S <- e^{G_C} S + K^T (e^{G_C - G} V').
/// If `residual` is not none, the state is subtracted first, and beta is in the residual instead of in U and
/// W:
///   R_j = beta_j (v_j - e^{G_j} S^T k_j), V' = T R.
/// The recurrent form uses only `qk`, `norm`, `reads_old_state`, `state`, `output`, `accumulator` and
/// `exponential`.
struct Contract {
  std::string name = "fp32";
  Format input = Format::fp32;   ///< q, k, v as oracle and kernel both read them (g and beta stay fp32)
  Format qk = Format::fp32;      ///< q and k as multiply operands (tf32 units; re-rounded after l2norm)
  Format beta_k = Format::none;  ///< beta k as operand of K K^T
  Format A = Format::fp32;       ///< storage of A
  Inverse inverse = Inverse::substitution;
  Format inverse_operand = Format::fp32;  ///< operands of the merges or of the doubling
  Format T = Format::fp32;                ///< stored inverse (T diag(beta) when beta_in_T)
  Format beta_v = Format::fp32;           ///< operand beta v
  Format beta_exp_k = Format::fp32;       ///< operand beta e^G k
  bool beta_in_T = false;                 ///< beta multiplies T, not v and k
  MergeOrder merges = MergeOrder::pairwise;
  Format residual = Format::none;  ///< R as operand of T R; then beta_v, beta_exp_k, U, W do not exist
  Format U = Format::fp32;
  Format W = Format::fp32;
  Format state_operand = Format::fp32;  ///< S as multiply operand
  Format v_new = Format::fp32;          ///< V' as operand of P V'
  Format v_decayed = Format::fp32;      ///< e^{G_C - G} V' as operand of the state update
  Format k_decayed = Format::none;      ///< if not none: the decay multiplies K instead, rounded to this
  Format P = Format::fp32;
  bool scale_in_P = false;  ///< P is scale Q K^T o E, and the output is scale e^G Q S + P V' in one sum
  Log2e log2e = Log2e::difference;
  Format q_decayed = Format::none;  ///< if not none: e^G q is an operand, rounded to this
  Format state = Format::fp32;      ///< S stored between chunks or steps
  Format output = Format::fp32;
  Accumulator accumulator = Accumulator::fp32;
  Exponential exponential = Exponential::exact;
  Scan scan = Scan::sequential;
  Norm norm = Norm::operand;
  bool reads_old_state = false;  ///< recurrent: o = e^g S^T q + u (k . q) from the state before the token
  /// Set for a kernel written elsewhere whose points the grammar cannot name exactly: these are the nearest
  /// ones. Bounds, laws and exact regimes still gate, and the distance to the twin is only reported.
  bool nearest = false;
};

}  // namespace samestate

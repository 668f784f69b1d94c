#pragma once

#include <cstdint>
#include <string>

/// The contract: what a kernel promises to round, where, and to which format (the numerics card of the
/// bounds). Data only, no arithmetic: it is the vocabulary that kernels and oracles share, so it stands on
/// floor 0 beside the view; the kernels round with their own code (optimized/cpu/rounding.h), the oracles
/// with theirs.
namespace samestate {

/// A storage or operand format. `none` at a rounding point says that the point does not exist in this kernel;
/// `fp32` says that nothing is rounded below the working precision there; `tf32x3` that an operand is two numbers of tf32, whose
/// products with those of the other operand are summed but for the smallest (3xTF32).
enum class Format { none, fp64, fp32, tf32, tf32_truncated, bf16, fp16, tf32x3 };

/// How T = (I + A)^-1 is computed: fp32 forward substitution; 16 x 16 substitution and merges whose operands
/// are rounded to `inverse_operand`; Neumann doubling with the same rounding; 8 x 8 substitution and merges
/// 8 -> 16 -> 32 -> 64, tf32 operands rounded by an integer addition of 0x1000 (a tie away from zero), sums
/// of tensor-core kind.
enum class Inverse { substitution, block16, neumann, block8 };

/// fp32 sums in any order, or tensor-core sums: 16 terms exact, then truncated to fp32.
enum class Accumulator { fp32, tensor_core };

/// In which order blocks become T. pairwise: neighbours, then pairs of them, T21 = -(T22 A21) T11. rows: one block row
/// after the other, T_ij = -T_ii sum_{j <= m < i} A_im T_mj in one sum, and next to the diagonal -(T_ii A_ij) T_jj.
enum class MergeOrder : std::uint8_t { pairwise, rows };

/// expf within one ulp, or ex2.approx(x * log2 e) with the product rounded to fp32.
enum class Exponential { exact, ex2 };

/// Of ex2, what log2 e multiplies in the chunked form: the difference G_i - G_j, each g before it is summed, or G.
enum class Log2e : std::uint8_t { difference, gate, sum };

/// Order of the fp32 cumulative sum of g inside a chunk; a bound takes the worse of both where it can.
enum class Scan { sequential, tree };

/// In-kernel l2norm, r = (sum x^2 + 1e-6)^-1/2 a row of q or k. operand: x r is what is multiplied, rounded
/// to `qk`. factor: x itself is the operand, and r multiplies fp32 sums: A_ij by r_i r_j, beta e^G of the
/// residual and e^{G_C - G} by r, P_ij by r^q_i r_j, e^G of the output by r^q. The recurrent form multiplies
/// vectors and keeps x r in fp32. unrounded: x r is what is multiplied, kept in fp32 until an operand rounds it.
enum class Norm { operand, factor, unrounded };

/// Which key head serves value head h: h / (Hv / Hk) (Qwen3-Next, FLA) or h mod Hk (the tiled map of ggml).
enum class HeadMap { interleaved, tiled };

/// One rounding point a field, named as the chunked form of EQUATIONS 5.5 names its matrices:
///   A = strict_lower(beta K K^T o E), T = (I + A)^-1, U = T beta V, W = T beta e^G K, V' = U - W S,
///   P = Q K^T o E, O = scale (e^G Q S + P V'), S <- e^{G_C} S + K^T (e^{G_C - G} V').
/// Where `residual` is not none, state first, with beta in the residual instead of U and W:
///   R_j = beta_j (v_j - e^{G_j} S^T k_j), V' = T R.
/// The recurrent form uses `qk`, `norm`, `reads_old_state`, `state`, `output`, `accumulator` and
/// `exponential` only.
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
  Format k_decayed = Format::none;      ///< where not none: the decay multiplies K instead, rounded to this
  Format P = Format::fp32;
  bool scale_in_P = false;  ///< P is scale Q K^T o E, and the output scale e^G Q S + P V' in one sum
  Log2e log2e = Log2e::difference;
  Format q_decayed = Format::none;  ///< where not none: e^G q is an operand, rounded to this
  Format state = Format::fp32;      ///< S stored between chunks or steps
  Format output = Format::fp32;
  Accumulator accumulator = Accumulator::fp32;
  Exponential exponential = Exponential::exact;
  Scan scan = Scan::sequential;
  Norm norm = Norm::operand;
  bool reads_old_state = false;  ///< recurrent: o = e^g S^T q + u (k . q) from the state before the token
  /// The points are the nearest that the grammar has, of a kernel that others wrote: bounds, laws and exact regimes gate,
  /// and the distance to the twin is reported.
  bool nearest = false;
};

}  // namespace samestate

#pragma once

#include <string_view>

#include "oracles/limits.h"
#include "reference/contract.h"
#include "reference/sequence.h"

/// The error that a correct kernel may make on one head under its contract (BOUNDS 2-7): the types that the
/// bounds of the recurrent and of the chunked form share, and the policy that turns them into tolerances.
namespace samestate {

/// det: worst case, never exceeded. prob: second moments of independent roundings. semi: second moments
/// inside a step or chunk, worst case across them (a stored low-precision state correlates roundings in
/// time).
enum class Mode { det, prob, semi };

/// Whether a token first removes what the state already holds for its key (delta rule). A system without a
/// gate has g = 0, which makes every decay term vanish by itself.
struct Structure {
  bool delta = true;
};

/// The error dS of a state: dS dS^T <= sigma (det) or E[dS dS^T] = sigma (prob, semi). `coherent` holds
/// the part made by a decay that rounds the same way at every token; it adds linearly, is not scaled by
/// lambda and is zero in det. Both dk x dk, symmetric, positive semidefinite. BOUNDS 4.
struct StateError {
  Matrix<double> sigma;
  Matrix<double> coherent;
  bool repeating_gate = false;  ///< an earlier segment showed that the gate repeats (coherent_decay)
};

/// The bound on one head. Rows are tokens; norms run over the dv columns.
struct Bound {
  Vector<double> before_output;    ///< [T] Bp: error before the output is rounded; lambda multiplies it
  Vector<double> coherent;         ///< [T] Bc: the coherent decay's part, not multiplied
  Vector<double> output_rounding;  ///< [T] R: hard bound on rounding the output to its format
  Vector<double> rms;              ///< [T] B = sqrt((Bp + Bc)^2 + R^2 / 3): prediction for the head gate
  Matrix<double> o;                ///< [T, dv] the exact output
  StateError carry;                ///< error of the final state, for the segment that goes on from it
  double state = 0.0;              ///< sqrt tr sigma + sqrt tr coherent: Frobenius error of the final state
  Vector<double> state_rows;       ///< [dk] the same for each row of the final state
  double largest = 0.0;            ///< largest magnitude that the kernel must represent (range guard G0)
  double nonlinearity = 0.0;       ///< ||T dA||, worst chunk: how far first order is from enough
  bool vacuous = false;            ///< the bound says nothing: first order fails, or not finite

  /// lambda Bp + Bc + R of token i; infinite where vacuous. BOUNDS 7.
  [[nodiscard]] double row_tolerance(Index token, double lambda) const;
  /// factor (sqrt tr sigma + sqrt tr coherent); infinite where vacuous.
  [[nodiscard]] double state_tolerance(double factor) const;
};

/// Errors of the two exponentials in units of u32 = 2^-24, for arguments x <= 0. `bias` is the part that does
/// not average out: over the arguments of one narrow range the error of a polynomial or table has a mean, and
/// a state that lives for many tokens collects it linearly. BOUNDS 4 has 2 and 3 + 1.5 |x| and no bias; what was
/// measured since is in oracles/limits.h.
struct ExponentialModel {
  double exact = kExpUnits;
  double exact_bias = kExpBias;
  double ex2 = kEx2Units;  ///< ex2 + ex2_slope |x|, and so for the bias
  double ex2_slope = kEx2Slope;
  double ex2_bias = kEx2Bias;
  double ex2_bias_slope = kEx2BiasSlope;
  /// The arguments may be sums that are exact until each is rounded, not only those of a running sum.
  bool rounded_once = true;
  /// Campaigns met three effects that the prototype lacks: one rounding of a row of q or k is in all that it meets, what a matrix
  /// unit cuts off a state has a mean (BOUNDS 5.2), and a chunk's gates may be summed twice (BOUNDS 5.4).
  bool repeats = true;
};

/// How a head is judged: the table "mode/lambda" of BOUNDS 7.
struct Policy {
  Mode mode = Mode::prob;
  double lambda = kRowLambda;
  double state_factor = kStateFactor;
  bool head_gate = true;
  double head_limit = kHeadLimit;  ///< on RMS(error) / RMS(B) over the tokens of the head
  /// Mode of the final state's tolerance, where the errors of the state repeat and those that o reads do not.
  Mode state_mode = Mode::prob;
};

/// g takes fewer than T / 2 distinct values and is not all zero: exp(g) then rounds alike again and again
/// (RetNet, a constant gate). BOUNDS 4.
[[nodiscard]] bool coherent_decay(const Vector<double>& g);

/// Fewer than T / 4 distinct rows (k, v, beta) (T < 32: at most half), T > 1: roundings repeat and add
/// linearly, so that no statistical mode holds. BOUNDS 0, 7.
[[nodiscard]] bool structured(const Sequence<double>& sequence);

/// The same of the keys alone. Errors then share a few directions, so that a head holds fewer independent
/// ones than it has elements: its limit is 2.5 whatever its size. A kernel that normalises and rounds k
/// itself then rounds it alike again and again: with beta -> 2 a head's RMS error was 3 times the prediction
/// of independent roundings.
[[nodiscard]] bool repeated_keys(const Sequence<double>& sequence);

/// The same of the pairs (k, v). Where k is rounded as an operand, every token of a pair then leaves the state off by the
/// same along the direction that its neighbours hardly see: what is memorised is right where it is read and off
/// across, by the sum of the tokens and not by its root (docs/understand/validation.md).
[[nodiscard]] bool repeated_pairs(const Sequence<double>& sequence);

/// The policy for a head in `form` ("recurrent" or "chunked", which decides the contract fields that count;
/// throws Error on another). Structured input: det, lambda 1, no head gate. Neumann doubling with rounded operands, and repeated
/// keys stored in 16 bits again: the same, since prob was exceeded 3.6e6-fold (BOUNDS 9.2). State stored below fp32: semi, 4.
/// Repeated keys in chunks: lambda 8.7. tf32 by truncation: lambda 16. Else prob, 5. Repeated pairs whose keys
/// are rounded: the state by semi; whose decayed keys are: rows too.
[[nodiscard]] Policy policy_for(const Contract& contract, const Sequence<double>& sequence,
                                std::string_view form, bool l2norm = false);

/// The relative error of the factor (sum x^2 + 1e-6)^-1/2 in fp32, common to a row of q or k, for a kernel
/// that normalises: the sum of dk squares, halved by the root, then the sum with 1e-6, the root and the
/// product. det (dk/2 + 4) u32; prob and semi (sqrt(dk)/2 + 4) u32 / sqrt 3.
[[nodiscard]] double l2norm_error(Mode mode, Index key_width);

}  // namespace samestate

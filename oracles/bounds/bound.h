#pragma once

#include <string_view>

#include "oracles/limits.h"
#include "reference/contract.h"
#include "reference/sequence.h"

/// The error that a correct kernel may make on one head under its contract (BOUNDS 2-7): the types that the
/// bounds of the recurrent and the chunked form share, and the policy that turns them into tolerances.
namespace samestate {

/// det: worst case, never exceeded. prob: second moments of independent roundings. semi: second moments
/// inside a step or chunk, worst case across them (a stored low-precision state correlates roundings in
/// time).
enum class Mode { det, prob, semi };

/// `delta` is true if a token first removes what the state already holds for its key (delta rule). A system
/// without a gate has g = 0, which makes every decay term vanish without further cases.
struct Structure {
  bool delta = true;
};

/// The error dS of a state: dS dS^T <= sigma (det) or E[dS dS^T] = sigma (prob, semi). `coherent` is the part
/// that comes from a decay that rounds the same way at every token; it adds linearly, is not scaled by
/// lambda, and is zero in det. Both are dk x dk, symmetric and positive semidefinite. BOUNDS 4.
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
  StateError carry;                ///< error of the final state, for the segment that continues from it
  double state = 0.0;              ///< sqrt tr sigma + sqrt tr coherent: Frobenius error of the final state
  Vector<double> state_rows;       ///< [dk] the same for each row of the final state
  double largest = 0.0;            ///< largest magnitude that the kernel must represent (range guard G0)
  double nonlinearity = 0.0;       ///< ||T dA||, worst chunk: how far first order is from enough
  bool vacuous = false;  ///< the bound is useless: the first-order expansion fails, or it is not finite

  /// lambda Bp + Bc + R of token i; infinite if the bound is vacuous. BOUNDS 7.
  [[nodiscard]] double row_tolerance(Index token, double lambda) const;
  /// factor (sqrt tr sigma + sqrt tr coherent); infinite if the bound is vacuous.
  [[nodiscard]] double state_tolerance(double factor) const;
};

/// Errors of the two exponentials in units of u32 = 2^-24, for arguments x <= 0. `bias` is the part that does
/// not average out: over a narrow range of arguments the error of a polynomial or table has a mean, and a
/// state that lives for many tokens accumulates it linearly. BOUNDS 4 has 2 and 3 + 1.5 |x| and no bias;
/// later measurements are in oracles/limits.h.
struct ExponentialModel {
  double exact = kExpUnits;
  double exact_bias = kExpBias;
  double ex2 = kEx2Units;  ///< ex2 + ex2_slope |x|, and likewise for the bias
  double ex2_slope = kEx2Slope;
  double ex2_bias = kEx2Bias;
  double ex2_bias_slope = kEx2BiasSlope;
  /// The arguments may also be sums that are exact until each is rounded once, and not only those of a
  /// running sum.
  bool rounded_once = true;
  /// Validation campaigns met three effects that the prototype lacks: one rounding of a row of q or k enters
  /// everything that the row is multiplied with, the truncation of a state by a matrix unit has a mean
  /// (BOUNDS 5.2), and a chunk's gates may be summed twice (BOUNDS 5.4).
  bool repeats = true;
};

/// How a head is judged: the table "mode/lambda" of BOUNDS 7.
struct Policy {
  Mode mode = Mode::prob;
  double lambda = kRowLambda;
  double state_factor = kStateFactor;
  bool head_gate = true;
  double head_limit = kHeadLimit;  ///< limit of RMS(error) / RMS(B) over the tokens of the head
  /// Mode of the tolerance of the final state, for data where the errors of the state repeat and those that o
  /// reads do not.
  Mode state_mode = Mode::prob;
};

/// True if g takes fewer than T / 2 distinct values and is not all zero: exp(g) then rounds the same way
/// again and again (RetNet, a constant gate). BOUNDS 4.
[[nodiscard]] bool coherent_decay(const Vector<double>& g);

/// True if T > 1 and fewer than T / 4 rows (k, v, beta) are distinct (if T < 32: at most half). Roundings
/// then repeat and add linearly, so no statistical mode holds. BOUNDS 0, 7.
[[nodiscard]] bool structured(const Sequence<double>& sequence);

/// The same for the keys alone. Errors then share a few directions, so a head has fewer independent errors
/// than elements: its limit is 2.5 whatever its size. A kernel that normalises and rounds k itself then
/// rounds it the same way again and again: with beta -> 2 the RMS error of a head was 3 times what
/// independent roundings predict.
[[nodiscard]] bool repeated_keys(const Sequence<double>& sequence);

/// The same for the pairs (k, v). If k is rounded as an operand, every token of a pair shifts the state by
/// the same amount along a direction that its neighbours hardly see: what is memorised is right where it is
/// read, and wrong across it by the sum over the tokens and not by its root (docs/validation.md).
[[nodiscard]] bool repeated_pairs(const Sequence<double>& sequence);

/// The policy for a head in `form` ("recurrent" or "chunked", which decides which contract fields count;
/// throws Error for any other). Structured input: det with lambda 1 and no head gate. The same for Neumann
/// doubling with rounded operands, and for repeated keys that are stored again in 16 bits, because prob was
/// exceeded 3.6e6-fold (BOUNDS 9.2). A state stored below fp32: semi, 4. Repeated keys in chunks: lambda 8.7.
/// tf32 by truncation: lambda 16. Otherwise prob, 5. For repeated pairs whose keys are rounded, the state
/// uses semi; if their decayed keys are rounded, rows use it too.
[[nodiscard]] Policy policy_for(const Contract& contract, const Sequence<double>& sequence,
                                std::string_view form, bool l2norm = false);

/// For a kernel that normalises: the relative error of the factor (sum x^2 + 1e-6)^-1/2 in fp32, common to a
/// row of q or k. It comes from the sum of dk squares, halved by the root, the sum with 1e-6, the root and
/// the product: det (dk/2 + 4) u32; prob and semi (sqrt(dk)/2 + 4) u32 / sqrt 3.
[[nodiscard]] double l2norm_error(Mode mode, Index key_width);

}  // namespace samestate

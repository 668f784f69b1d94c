#pragma once

#include "reference/sequence.h"

/// Every limit of a verdict that no derivation gives, with its source; how far the judge looks is in
/// judge_policy.h. docs/validation.md ("Constants that are not derived") shows the same to users, and a test
/// checks that the two agree. Everything else is a formula whose source is cited above it.
namespace samestate {

// Rows and states (BOUNDS 2, 7): multiples of a standard deviation.

/// State in fp32: a quarter above the largest value in 5.9 M development rows, 3.92 (BOUNDS 2, F5, asks for
/// 13.6).
inline constexpr double kRowLambda = 5.0;
/// State below fp32, whose errors are added linearly over time: set like kRowLambda.
inline constexpr double kRowLambdaLowState = 4.0;
/// Repeated keys, for which no statement of independence holds: one rounding of P enters many products, and
/// it is the sum of their values that is normal; it is at most sqrt(3) deviations, hence 5 sqrt(3). The
/// largest value seen is 5.2 (docs/validation.md).
inline constexpr double kRowLambdaRepeated = 8.7;
/// tf32 by truncation, whose errors have a mean: 15 was needed (BOUNDS 13.2).
inline constexpr double kRowLambdaTruncated = 16.0;
/// Frobenius norm of the final state: at most 0.67 of this in 39 281 held-out sequences (BOUNDS 9.1).
inline constexpr double kStateFactor = 4.0;

// Heads, RMS(error) / RMS(prediction) (BOUNDS 7.1, 9.1): the largest seen is 1.45; 1.548 in tf32; 2.13 with
// few elements.

inline constexpr double kHeadLimit = 1.5;
inline constexpr double kHeadLimitTf32 = 2.0;
/// Below kHeadTokens tokens or kHeadElements elements, and with repeated keys. Below 8 tokens it is the RMS
/// whose tail probability is that of a row at kRowLambda: 5.00, 3.79, 3.26, 2.94, 2.72, 2.57, 2.50.
inline constexpr double kHeadLimitFew = 2.5;
inline constexpr Index kHeadTokens = 64;
inline constexpr Index kHeadElements = 1000;

// The choice of the mode (BOUNDS 0, 4, 7): the development campaign needed lambda = 47 on constant input.

/// Structured input: fewer than 1 / kStructuredPart of the rows are distinct. Below kShortSequence tokens a
/// quarter is too coarse a count, and the limit is at most 1 / kStructuredShortPart: with 8 tokens and 2 or 4
/// different keys, the coherent roundings of one key exceeded a head's limit by factors of 1.2 and 1.4 (2 of
/// 44,000 cases).
inline constexpr Index kStructuredPart = 4;
inline constexpr Index kShortSequence = 32;
inline constexpr Index kStructuredShortPart = 2;
/// Coherent decay: fewer than 1 / kRepeatingGatePart of the gates are distinct.
inline constexpr Index kRepeatingGatePart = 2;

// The ||T dA|| from which on the first-order bound of (I + A)^-1 is useless (BOUNDS 5, fac; 9.1).

inline constexpr double kNonlinearityWorst = 0.9;
/// At three standard deviations.
inline constexpr double kNonlinearity = 0.7;

// The twin (BOUNDS 10.3): correct kernels with another order of sums had medians up to 0.10 and RMS ratios
// 0.987 .. 1.017; an undeclared rounding gives 0.1 to 1.1.

inline constexpr double kTwinMedian = 0.15;
inline constexpr double kTwinMedianTf32 = 0.25;
inline constexpr double kTwinRms = 0.03;
inline constexpr double kTwinRmsTf32 = 0.1;
/// Rows count if the prediction is at least this many times the error that the order of fp32 sums makes by
/// itself.
inline constexpr double kTwinMargin = 8.0;
/// No limit is below this many times the twin's drift from itself with its sums reordered.
inline constexpr double kTwinSpread = 3.0;
/// Fewer rows or elements are too few for a statistic.
inline constexpr Index kTwinTokens = 32;
inline constexpr Index kTwinElements = 1000;
/// If kernel and twin differ in fewer directions than this, after as many rows that are the same, some
/// roundings fell the other way and all later rows inherit them: one such rounding gives 1 to 2 directions,
/// roundings in each of 32 rows of 32 give 16.
inline constexpr double kTwinTurned = 4.0;
/// The same for a final state, as a share of the directions of the twin's own errors: turned roundings had
/// 0.06 to 0.4 of them, a rounding of every token that no contract has 0.85 to 1.05.
inline constexpr double kTwinTurnedOfStates = 0.5;
/// A router's open choice, read from the outputs of a block: it must have at least this many channels, and
/// every other choice must be this many times as far away as the nearest (with fewer, a rounding comes as
/// near to another choice: 3 of 1,500 correct cases failed because of it). No choice is read if the nearest
/// is farther than this many times its own worst case, since the worst case of another choice has the same
/// size.
inline constexpr int kChoiceChannels = 8;
inline constexpr double kChoiceFarther = 8.0;
inline constexpr double kChoiceWorstCases = 4.0;

/// The number of directions among the errors of final states, which is about the number of tokens that the
/// states still hold. Below it, one rounding that falls the other way is a large part of the whole. No false
/// alarms in docs/validation.md.
inline constexpr double kTwinDirections = 16.0;

// Drawn roundings (bounds_operators.md 3, 4).

/// Probability, in the model, that one statistic of one output of a correct kernel is above its limit: no
/// false alarm in 21 000 held-out cases of the prototype, and the second look must agree.
inline constexpr double kSampledFalseAlarm = 1e-9;
/// No limit is below this many times the largest sample's value.
inline constexpr double kSampledMargin = 1.25;
/// The weight, in samples, that a row's variance has in the variance of its elements.
inline constexpr double kSampledPrior = 4.0;
/// The smallest spread of the logarithm of a statistic that is believed.
inline constexpr double kSampledSpread = 0.03;
/// A term far below the running sum is cut off, which is a bias and not a random error: sums of positive fp32
/// numbers in order lose up to this share of n u, and three times as much with the largest term first (16,384
/// squares in which every sixteenth number is 10,000 times the others). The limits are about nine deviations
/// of what samples lose.
inline constexpr double kStagnation = 0.03;
/// n times the sum of squares over the square of the sum, from which on a sum loses all of kStagnation; below
/// it the loss is proportional. It is 3 for squares of normal numbers and 12 for their fourth powers.
inline constexpr double kStagnationSpread = 48.0;
/// If nothing is kept in fewer bits than fp32, samples cannot have missed ties that fall the other way: an
/// error this many limits beyond the first look needs no more samples.
inline constexpr double kGrossExcess = 8.0;

// The runs of contracts without rounding points that are judged by drawn roundings in addition to the worst
// case (bounds_operators.md 12).

/// The tolerance of a row, as a share of its size, up to which the worst case is enough: a fifth of 2^-11,
/// the error of a tf32 operand.
inline constexpr double kRoomOfWorstCase = 1e-4;
/// A row's error is examined if it exceeds this many times the change that moving the inputs by a rounding
/// causes: sums of n terms one after the other have an error of sqrt(n) / 2 of that, and 16,384 is the widest
/// in the plan.
inline constexpr double kDoubt = 64.0;
/// This many equal tokens have errors within the limits of 32 independent ones; with 383 they are 1.7 times
/// too large (softmax over keys half of which are zero).
inline constexpr int kAlikeTokens = 32;
/// The error, as a share of a row, that the worst case has to exclude by itself. If its tolerance is wider
/// (RMS over the row's columns, divided by the RMS of the expected values), drawn roundings decide, or the
/// run is vacuous. It is what the gate promises to find, a fault of 2 %, and is not set from a measurement.
inline constexpr double kWideTolerance = 0.02;
/// The share of it, relative to a row's RMS, that an element of a wide row may be wrong by without a draw:
/// the effect of a fault of kWideTolerance on an element that is a twentieth of the row's RMS.
inline constexpr double kLargeShare = 0.05;
/// Smaller errors may come from values flushed to zero, several times over: 64 times 2^-125.
inline constexpr double kLeastError = 0x1p-119;
// The twin of operators (bounds_operators.md 4, 9), as shares of roundings that a kernel and its twin do not
// have in common.

/// The mean over rows up to which a kernel is its twin: a twenty-fifth of the variance of all other
/// roundings, which no statistic of drawn roundings would see.
inline constexpr double kOperatorTwinSame = 0.02;
/// The same for one row, whose error is then at most 2.2 times the twin's.
inline constexpr double kOperatorTwinRow = 0.25;
/// Distance of an element, in RMS of the twin's errors in its row; the largest element of a sample is that
/// far away too.
inline constexpr double kOperatorTwinElement = 3.0;
/// The mean over rows from which on a rounding is undeclared: one with a tenth of the variance of all others.
inline constexpr double kOperatorTwinShare = 0.05;
/// This many rows may differ completely.
inline constexpr double kOperatorTwinRows = 3.0;
/// No limit is below this many times the largest value among the twins with fp32 sums in another order.
inline constexpr double kOperatorTwinSpread = 3.0;
/// Fewer rows are too few for a statistic.
inline constexpr Index kOperatorTwinLeast = 8;
// Cards read from outputs (harness/card).

/// Distances below this come from the order of fp32 sums, whatever the contract.
inline constexpr double kCardFloor = 3e-8;
/// Relative errors below this need no explanation: fp32 sums in any order, carried over about a hundred
/// tokens.
inline constexpr double kCardOrderOfSums = 1e-5;
/// The sum of decimal logarithms that a change must gain: a fifth of one distance.
inline constexpr double kCardGain = 0.1;
/// Roundings to 16 bits that fall the other way because of an fp32 error: about one in ten thousand, so few
/// or none of a probe's values do, whatever the contract.
inline constexpr double kCardFewRoundings = 4.0;
/// The factor from which on two values count as distinguishable.
inline constexpr double kCardToldApart = 10.0;
/// The factor below which two values count as equal.
inline constexpr double kCardAlike = 3.0;
/// The ratio of distance to error up to which a card explains the outputs: sums in another order give 0.0001
/// to 0.05.
inline constexpr double kCardExplained = 0.15;

// Vacuous: the RMS(tolerance) / RMS(expected) above which a pass would prove nothing. Errors within their
// tolerances have RMS(error) <= RMS(tolerance), so such a limit is the largest relative error that can pass.

/// Rows of a head, with a statistical tolerance (BOUNDS 7.1, GV): 2 of 52 453 held-out sequences exceeded it
/// or the first-order limit (BOUNDS 9.1).
inline constexpr double kVacuousRows = 0.3;
/// Outputs of an operator, with a worst case that is wide by nature: losing a factor of 2 makes an error of
/// half the output; a wrong sign (2) and zeros (1) are larger.
inline constexpr double kVacuousOutput = 0.5;
/// Overflow is expected if the largest intermediate value comes this close to the format's largest (BOUNDS
/// 7.1, G0).
inline constexpr double kRangeMargin = 1.02;

// Errors of functions in units of 2^-24 (BOUNDS 4, 13.9), measured on one H100 with CUDA 13.0.

/// Measured 2.51: expf for every 101st fp32 number in [-126, -2^-24].
inline constexpr double kExpUnits = 2.6;
/// Measured 1.32: the largest mean over windows x .. x (1 + 2^-10), x from 1e-5 to 86.
inline constexpr double kExpBias = 1.4;
/// Measured over [x, 0]: 2.57 at -1, 4.6 at -5, 16 at -20, 63 at -80 or -85.
inline constexpr double kEx2Units = 3.0;
inline constexpr double kEx2Slope = 1.5;
/// Measured: a mean of at most 1.20 (1 + 0.25 |x|); the slope is the rounding of log2 e.
inline constexpr double kEx2Bias = 1.3;
inline constexpr double kEx2BiasSlope = 0.3;
/// log, log1p, expm1, sin, cos: not measured; this is what libraries state.
inline constexpr double kFunctionUnits = 4.0;

// Proofs (oracles/proofs).

/// Relative units in the last place that reordered sums of the small draws may differ by: 11 in float64.
inline constexpr double kIdentityUlps = 512.0;
/// The relative difference from which on a negative control is visible.
inline constexpr double kVisibleDifference = 1e-3;

}  // namespace samestate

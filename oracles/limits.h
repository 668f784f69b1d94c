#pragma once

#include "reference/sequence.h"

/// Every limit of a verdict that no derivation gives, with what it was set from; how far the judge looks is judge_policy.h. docs/understand/validation.md
/// ("Constants that are not derived") says the same to users; a test holds the two together. All else is a
/// formula with its source above it.
namespace samestate {

// Rows and states (BOUNDS 2, 7): multiples of a standard deviation.

/// State in fp32: a quarter above the largest of 5.9 M development rows, 3.92 (BOUNDS 2, F5, asks 13.6).
inline constexpr double kRowLambda = 5.0;
/// State below fp32, its errors added linearly in time: as kRowLambda.
inline constexpr double kRowLambdaLowState = 4.0;
/// Repeated keys, of which no statement of independence holds: one rounding of P is in many products, the sum of whose
/// values is what is normal, and it is at most sqrt(3) deviations: 5 sqrt(3). 5.2 was seen (docs/understand/validation.md).
inline constexpr double kRowLambdaRepeated = 8.7;
/// tf32 by truncation, whose errors have a mean: 15 was needed (BOUNDS 13.2).
inline constexpr double kRowLambdaTruncated = 16.0;
/// Frobenius norm of the final state: at most 0.67 of it in 39 281 held-out sequences (BOUNDS 9.1).
inline constexpr double kStateFactor = 4.0;

// Heads, RMS(error) / RMS(prediction) (BOUNDS 7.1, 9.1): largest 1.45; in tf32 1.548; in few elements 2.13.

inline constexpr double kHeadLimit = 1.5;
inline constexpr double kHeadLimitTf32 = 2.0;
/// Below kHeadTokens tokens or kHeadElements elements, and with repeated keys; below 8 tokens the RMS whose
/// tail is that of a row at kRowLambda: 5.00, 3.79, 3.26, 2.94, 2.72, 2.57, 2.50.
inline constexpr double kHeadLimitFew = 2.5;
inline constexpr Index kHeadTokens = 64;
inline constexpr Index kHeadElements = 1000;

// Which mode (BOUNDS 0, 4, 7): the development campaign needed lambda = 47 on constant input.

/// Structured: fewer than a kStructuredPart-th of the rows are distinct; below kShortSequence tokens, where a
/// quarter is no number to count with, at most a kStructuredShortPart-th: of 8 tokens with 2 or 4 different keys the
/// coherent roundings of one stood out by 1.2 and 1.4 of a head's limit (2 of 44,000 cases).
inline constexpr Index kStructuredPart = 4;
inline constexpr Index kShortSequence = 32;
inline constexpr Index kStructuredShortPart = 2;
/// Coherent decay: fewer than a kRepeatingGatePart-th of the gates are distinct.
inline constexpr Index kRepeatingGatePart = 2;

// ||T dA|| from which on the first-order bound of (I + A)^-1 says nothing (BOUNDS 5, fac; 9.1).

inline constexpr double kNonlinearityWorst = 0.9;
/// Of three standard deviations.
inline constexpr double kNonlinearity = 0.7;

// The twin (BOUNDS 10.3): correct kernels of another order had medians up to 0.10 and RMS ratios 0.987 .. 1.017,
// an undeclared rounding 0.1 to 1.1.

inline constexpr double kTwinMedian = 0.15;
inline constexpr double kTwinMedianTf32 = 0.25;
inline constexpr double kTwinRms = 0.03;
inline constexpr double kTwinRmsTf32 = 0.1;
/// Rows count where the prediction is so many times what the order of fp32 sums makes by itself.
inline constexpr double kTwinMargin = 8.0;
/// No limit lies below so many times the twin's drift from itself with its sums reordered.
inline constexpr double kTwinSpread = 3.0;
/// Fewer rows or elements are no statistic.
inline constexpr Index kTwinTokens = 32;
inline constexpr Index kTwinElements = 1000;
/// Directions of what kernel and twin differ by below which, behind as many rows that are the same, it is some roundings that
/// fell the other way and are in all later rows: one has 1 to 2, roundings of each of 32 rows of 32 have 16.
inline constexpr double kTwinTurned = 4.0;
/// Of a final state, as a share of the directions of the twin's own errors: turned roundings had 0.06 to 0.4 of them, one that
/// no contract has in every token 0.85 to 1.05.
inline constexpr double kTwinTurnedOfStates = 0.5;
/// A router's open choice, read from the outputs of a block: of so many channels at least, each other choice so many times as far
/// as the nearest (of fewer, a rounding comes as near to another choice: 3 of 1,500 right cases failed by it); none, where the
/// nearest is beyond so many times its own worst case, since another choice's is of the same size.
inline constexpr int kChoiceChannels = 8;
inline constexpr double kChoiceFarther = 8.0;
inline constexpr double kChoiceWorstCases = 4.0;

/// Directions that the errors of final states share out among, as many as tokens that the states still hold: below,
/// one rounding that falls the other way is a large part of all. 0 false alarms in docs/understand/validation.md.
inline constexpr double kTwinDirections = 16.0;

// Drawn roundings (bounds_operators.md 3, 4).

/// Probability, in the model, that one statistic of one output of a right kernel is above its limit: 0 of 21 000
/// held-out cases of the prototype, and the second look must agree.
inline constexpr double kSampledFalseAlarm = 1e-9;
/// No limit is below so many times the largest sample's.
inline constexpr double kSampledMargin = 1.25;
/// Weight, in samples, of a row's variance in that of its elements.
inline constexpr double kSampledPrior = 4.0;
/// Least spread that is believed of the logarithm of a statistic.
inline constexpr double kSampledSpread = 0.03;
/// A term far below the running sum is cut off, which is a bias and not a random error: sums of positive fp32 numbers in order lose up
/// to this share of n u, and three times as much with the largest term first (16,384 squares of which each sixteenth is 10,000 times
/// the others). The limits are about nine deviations of what samples lose.
inline constexpr double kStagnation = 0.03;
/// n times the sum of squares over the square of the sum, from which on a sum loses the whole of kStagnation; below it the loss is in
/// proportion. It is 3 for squares of normal numbers and 12 for their fourth powers.
inline constexpr double kStagnationSpread = 48.0;
/// Where nothing is kept in fewer bits than fp32 there are no ties whose turning a sample may have missed: so many limits
/// beyond the first look's are no matter of more samples.
inline constexpr double kGrossExcess = 8.0;

// Which runs of contracts without rounding points are judged by drawn ones beside the worst case (bounds_operators.md 12).

/// Tolerance of a row, as a share of its size, up to which the worst case is enough: a fifth of 2^-11, by which an operand
/// of tf32 is off.
inline constexpr double kRoomOfWorstCase = 1e-4;
/// A row's error is looked at above so many times what inputs moved by a rounding make of it: sums of n terms one after the other err by sqrt(n) / 2
/// of it, and 16,384 is the widest of the plan.
inline constexpr double kDoubt = 64.0;
/// So many equal tokens err as 32 independent ones do within their limits, 1.7 times too far at 383 (softmax over keys half
/// of which are zero).
inline constexpr int kAlikeTokens = 32;
/// The share of a row that the worst case has to exclude by itself: where its tolerance is wider (RMS over the row's columns,
/// over the RMS of what is expected there), drawn roundings decide, or the run is vacuous. It is what the gate owes, a fault
/// of 2 %, and set from no measurement.
inline constexpr double kWideTolerance = 0.02;
/// Share of it, of a row's RMS, that an element of a wide row may err by without a draw: what a fault of kWideTolerance makes of
/// an element that is a twentieth of the row's RMS.
inline constexpr double kLargeShare = 0.05;
/// Errors below are what may have been flushed to zero, some times over: 64 times 2^-125.
inline constexpr double kLeastError = 0x1p-119;
// The twin of operators (bounds_operators.md 4, 9), in shares of roundings that a kernel and its twin do not have in common.

/// Mean over rows up to which a kernel is its twin: a twenty-fifth of the variance of all other roundings, which no
/// statistic of drawn ones would see.
inline constexpr double kOperatorTwinSame = 0.02;
/// The same of one row, whose error is then at most 2.2 times the twin's.
inline constexpr double kOperatorTwinRow = 0.25;
/// Distance of an element, in RMS of the twin's errors in its row; a sample's largest element is as far off as that.
inline constexpr double kOperatorTwinElement = 3.0;
/// Mean over rows from which on a rounding is undeclared: one of a tenth of the variance of all others.
inline constexpr double kOperatorTwinShare = 0.05;
/// So many rows may differ altogether.
inline constexpr double kOperatorTwinRows = 3.0;
/// No limit is below so many times the largest of the twins with the sums of fp32 in another order.
inline constexpr double kOperatorTwinSpread = 3.0;
/// Fewer rows are no statistic.
inline constexpr Index kOperatorTwinLeast = 8;
// Cards read from outputs (harness/card).

/// Distances below this are the order of fp32 sums, whatever the contract.
inline constexpr double kCardFloor = 3e-8;
/// Relative errors below this are not asked to be explained: fp32 sums in any order, carried over some hundred tokens.
inline constexpr double kCardOrderOfSums = 1e-5;
/// Sum of decimal logarithms that a change must gain: a fifth of one distance.
inline constexpr double kCardGain = 0.1;
/// Roundings of 16 bit that fall the other way by an error of fp32: one of some ten thousand, so that of a probe's values
/// few do or none, whatever the contract.
inline constexpr double kCardFewRoundings = 4.0;
/// From which factor on a value counts as told apart.
inline constexpr double kCardToldApart = 10.0;
/// Below which factor two values are alike.
inline constexpr double kCardAlike = 3.0;
/// Distance over error up to which a card explains the outputs: sums in another order make 0.0001 to 0.05 of it.
inline constexpr double kCardExplained = 0.15;

// Vacuous: RMS(tolerance) / RMS(expected) above which a pass would say nothing. Errors within their tolerances
// have RMS(error) <= RMS(tolerance), so a limit is the relative error above which nothing passes.

/// Rows of a head, against a statistical tolerance (BOUNDS 7.1, GV): 2 of 52 453 held-out sequences exceeded it
/// or first order (BOUNDS 9.1).
inline constexpr double kVacuousRows = 0.3;
/// Outputs of an operator, against a worst case that is wide by nature: half the output is the error of a lost
/// factor of 2; a wrong sign (2) and zeros (1) are larger.
inline constexpr double kVacuousOutput = 0.5;
/// Overflow is expected where the largest value on the way comes this near to the format's (BOUNDS 7.1, G0).
inline constexpr double kRangeMargin = 1.02;

// Errors of functions in units of 2^-24 (BOUNDS 4, 13.9), measured on one H100 with CUDA 13.0.

/// Measured 2.51: expf of every 101st fp32 in [-126, -2^-24].
inline constexpr double kExpUnits = 2.6;
/// Measured 1.32: largest mean over windows x .. x (1 + 2^-10), x from 1e-5 to 86.
inline constexpr double kExpBias = 1.4;
/// Measured over [x, 0]: 2.57 at -1, 4.6 at -5, 16 at -20, 63 at -80 or -85.
inline constexpr double kEx2Units = 3.0;
inline constexpr double kEx2Slope = 1.5;
/// Measured mean at most 1.20 (1 + 0.25 |x|), the slope being the rounding of log2 e.
inline constexpr double kEx2Bias = 1.3;
inline constexpr double kEx2BiasSlope = 0.3;
/// log, log1p, expm1, sin, cos: not measured, what libraries state of themselves.
inline constexpr double kFunctionUnits = 4.0;

// Proofs (oracles/proofs).

/// Units of the last place, relative, that reordered sums of the small draws may make: 11 in float64.
inline constexpr double kIdentityUlps = 512.0;
/// Relative difference from which on a negative control is seen.
inline constexpr double kVisibleDifference = 1e-3;

}  // namespace samestate

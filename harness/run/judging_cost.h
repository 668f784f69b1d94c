#pragma once

/// Constants that estimate the cost of judging a case, fitted to judged cases: System::work adds it up, plans
/// divide their time by it, and the judge divides the work of a policy (oracles/judge_policy.h) by it.
/// docs/lookup/policy.md shows the same table to users, and tests/oracles/limits_test.cpp checks that the two agree.
/// A wrong estimate makes a case take longer or shorter, or fewer of its heads compared; it changes no limit.
namespace samestate {

// The recurrent family, in microseconds of one core, fitted to 40,000 judged cases (harness/run/head_cost.h).

/// A head that has tokens.
inline constexpr double kHeadCost = 6.6;
/// A head of an empty sequence.
inline constexpr double kEmptyHeadCost = 1.3;
/// A chunk of a head.
inline constexpr double kChunkCost = 3.9;
/// An element of the L x L matrices of a chunk of L tokens.
inline constexpr double kChunkMatrixCost = 28e-3;
/// A unit of L^3 for a chunk of L tokens, if the system inverts I + A.
inline constexpr double kChunkInverseCost = 0.95e-3;
/// An element of the state's covariance, for each chunk.
inline constexpr double kChunkStateCost = 6.8e-3;
/// The same for each token of a chunk.
inline constexpr double kTokenOfChunkCost = 2.4e-3;
/// The same for each token of the recurrent form.
inline constexpr double kTokenStateCost = 3.9e-3;
/// A factor if tokens are divided among ranks: the bound of the maps in addition to that of the outputs.
inline constexpr double kRanksFactor = 2.5;
/// A head that only float64 looks at.
inline constexpr double kPlainHeadCost = 2.0;
/// A token of such a head.
inline constexpr double kPlainTokenCost = 0.1;
/// An element of the state, for each token of such a head.
inline constexpr double kPlainStateCost = 1.2e-3;
/// An element of q, k, v and o: drawn, copied and compared.
inline constexpr double kElementCost = 27e-3;
/// An element of a state.
inline constexpr double kStateElementCost = 31e-3;
/// A law: several runs, some of them without bounds.
inline constexpr double kFamilyLawFactor = 4.0;
/// Microseconds in a unit of work.
inline constexpr double kFamilyUnit = 65e3;

// Systems of named tensors, in multiplications of the reference; the running error makes these about thirty
// times as expensive.

/// An element that is drawn, copied and judged.
inline constexpr double kTensorElementCost = 16.0;
/// A sequence, which is a separate call.
inline constexpr double kSequenceCost = 2000.0;
/// A tensor in each of several calls, of which each call takes its part.
inline constexpr double kTensorOfCallCost = 1000.0;
/// Evaluation in float64, as a share of the running error.
inline constexpr double kPlainShare = 0.04;
/// A law's runs.
inline constexpr double kTensorLawFactor = 5.0;
/// A look at drawn roundings in addition to the worst case.
inline constexpr double kSampledFactor = 2.0;
/// A backward pass: its reference keeps and makes again what the forward pass makes once.
inline constexpr double kBackwardFactor = 2.0;
/// The same in fp32, where the gradients' sums cancel, so that most of its runs are in doubt and drawn.
inline constexpr double kBackwardDrawnFactor = 16.0;
/// The stages of a layer, which together evaluate the layer once more.
inline constexpr double kStagesFactor = 2.0;
/// Multiplications in a unit of work; most cases are far below it.
inline constexpr double kTensorUnit = 6e6;

}  // namespace samestate

#pragma once

/// These constants estimate what judging a case takes, fitted on judged cases: System::work adds it up, plans share their time by
/// it, and the judge divides the work of a policy (oracles/judge_policy.h) by it. docs/lookup/policy.md shows the same table to users, and
/// tests/oracles/limits_test.cpp holds the two together. A wrong estimate makes a case longer or shorter, or fewer of its heads held;
/// it changes no limit.
namespace samestate {

// The recurrent family, in microseconds of one core, fitted on 40,000 judged cases (harness/run/head_cost.h).

/// A head that has tokens.
inline constexpr double kHeadCost = 6.6;
/// A head of an empty sequence.
inline constexpr double kEmptyHeadCost = 1.3;
/// A chunk of a head.
inline constexpr double kChunkCost = 3.9;
/// An element of the square of a chunk's tokens.
inline constexpr double kChunkMatrixCost = 28e-3;
/// An element of the cube of a chunk's tokens, where the system inverts I + A.
inline constexpr double kChunkInverseCost = 0.95e-3;
/// An element of the state's covariance, for each chunk.
inline constexpr double kChunkStateCost = 6.8e-3;
/// The same for each token of a chunk.
inline constexpr double kTokenOfChunkCost = 2.4e-3;
/// The same for each token of the recurrent form.
inline constexpr double kTokenStateCost = 3.9e-3;
/// Where tokens are divided among ranks: the bound of the maps beside that of the outputs.
inline constexpr double kRanksFactor = 2.5;
/// A head that float64 alone looks at.
inline constexpr double kPlainHeadCost = 2.0;
/// A token of it.
inline constexpr double kPlainTokenCost = 0.1;
/// An element of the state, for each token of it.
inline constexpr double kPlainStateCost = 1.2e-3;
/// An element of q, k, v and o: drawn, copied and compared.
inline constexpr double kElementCost = 27e-3;
/// An element of a state.
inline constexpr double kStateElementCost = 31e-3;
/// A law: several runs, not all of them with bounds.
inline constexpr double kFamilyLawFactor = 4.0;
/// Microseconds that are a unit of work.
inline constexpr double kFamilyUnit = 65e3;

// Systems of named tensors, in multiplications of the reference, which the running error makes about thirty times as dear.

/// An element that is drawn, copied and judged.
inline constexpr double kTensorElementCost = 16.0;
/// A sequence, which is a call of its own.
inline constexpr double kSequenceCost = 2000.0;
/// A tensor of each of several calls, which takes its part of it.
inline constexpr double kTensorOfCallCost = 1000.0;
/// Evaluation in float64, as a share of the running error.
inline constexpr double kPlainShare = 0.04;
/// A law's runs.
inline constexpr double kTensorLawFactor = 5.0;
/// A look at drawn roundings beside the worst case.
inline constexpr double kSampledFactor = 2.0;
/// The stages of a layer, which together are the layer once more.
inline constexpr double kStagesFactor = 2.0;
/// Multiplications that are a unit of work; most cases stay far below.
inline constexpr double kTensorUnit = 6e6;

}  // namespace samestate

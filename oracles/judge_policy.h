#pragma once

#include <string_view>

#include "reference/sequence.h"

/// A policy says how long and how deep a judge looks at one run: how much of it is held to its tolerance, and how much work twins
/// and drawn roundings may take. No limit that an error is held against is here (oracles/limits.h). docs/lookup/policy.md ("How far the
/// judge looks") shows the same table to users; tests/oracles/judge_policy_test.cpp holds the two together.
/// A unit of work is that of System::work: about 60 ms of one core (kSecondsOfWork), of which a running error is about 35 ms.
namespace samestate {

/// The initial values are those of the gate. Every judging function takes one as an argument.
struct JudgePolicy {
  std::string_view name;  ///< in records, as `policy`

  // Heads of the recurrent family, and sequences of named tensors, that are held to their tolerance (harness/run/chosen_heads.h).
  /// At least so many of a case that has more: the ends and block edges of both axes first, then heads that the seed draws.
  Index held_heads = 24;
  /// The fewest, however long one takes: the first and the last.
  Index fewest_heads = 2;
  /// Microseconds of one core for the bounds of these heads (HeadCost), so that wide heads leave a case short.
  double held_microseconds = 120e3;
  /// The same for the other heads, which float64 alone looks at.
  double float64_microseconds = 120e3;
  /// Seconds for the running error of sequences of named tensors, of which at least one is held.
  double sequence_seconds = 0.25;
  /// Added by each of two measures (the whole, the worst row): those whose outputs lie farthest from float64.
  Index farthest = 3;

  // Tokens of a long sequence whose tokens depend on no other's result (harness/run/chosen_tokens.h).
  /// A sequence that has no more is held whole. A tolerance takes tens of times what float64 takes.
  Index all_tokens = 384;
  /// The first ones, where a state or a window begins.
  Index first_tokens = 32;
  /// On both sides of an edge, of the last token and of each drawn one.
  Index tokens_beside = 8;
  /// The first of the edges, each twice the one before it: tiles and blocks of threads end there.
  Index first_edge = 64;
  /// Drawn by the seed, so that seeds together reach every token.
  Index drawn_tokens = 3;
  /// The same four where few tokens follow a cached prompt: theirs are the calls that the case is about.
  Index all_of_prompt = 64;
  Index first_of_prompt = 4;
  Index last_of_prompt = 4;
  Index beside_in_prompt = 1;

  // A second run in pieces, each from the state that the kernel itself left (BOUNDS 10.1).
  /// True if the kernel may be called again; a recorded run cannot.
  bool reruns = true;
  /// Tokens of a piece of the recurrent form: long enough to carry, short enough that a state of 16 bit does not drift.
  Index piece_tokens = 4;
  /// Twins with g and beta moved by a unit in the last place, whose largest drift is the second look's: with four keys, or keys of
  /// one line, another order of the factors of A turned a median of 0.159 of a rounding, and moved gates turn as much.
  int twin_nudges = 8;

  // The twin of operators (bounds_operators.md 4, 9), in units of work.
  /// For all sequences of a case, where its contract has rounding points and the worst case passes.
  double twin_work = 0.5;
  /// The same where the worst case says nothing.
  double vacuous_twin_work = 2.0;
  /// Twins with the sums of fp32 in another order: in the first look, in the second, and of the nearest twin before it fails.
  int twin_first = 4;
  int twin_second = 32;
  int twin_third = 512;
  /// Points left out are looked for in every subset of up to so many (128 twins); beyond, one after the other and in pairs.
  int twin_subsets = 7;
  /// Twins that are evaluated at most, so that a layer of many points ends.
  int twin_variants = 400;
  /// The nearest of a round, which begin the next: roundings are independent, so that each right change comes nearer by itself.
  int twin_beam = 3;
  /// Twins that are judged beside those of the first round.
  int twin_offered = 24;
  /// Twins that other sequences were found to have: one, and what a sequence's values do not tell from it.
  int twins_known = 3;
  /// So many sequences that failed before any twin was known are judged again with it; a wrong kernel fails in more.
  Index early_failures = 4;

  // Drawn roundings (bounds_operators.md 3, 12), in units of work.
  /// For all sequences of a case whose worst case passes, with rounding points.
  double draw_work = 0.1;
  /// Where the worst case says nothing: with rounding points, and without, where a sample draws every operation.
  double vacuous_draw_work = 1.0;
  double vacuous_draw_work_in_fp32 = 0.3;
  /// Tokens of a chunk beyond which the last two shrink with the square: a chunk's inverse is evaluated as its form has it.
  Index large_chunk = 64;
  /// For rows in doubt (few right runs have any), with chunks up to large_chunk, and beyond: about forty samples of a case.
  double doubt_work = 256.0;
  double doubt_work_of_large_chunk = 0.5;
  /// Up to so many tokens a sample mostly reads weights, once for all samples; with more its work counts so many times.
  Index few_tokens = 4;
  double many_tokens_factor = 16.0;
  /// Tokens in doubt that are drawn alone, where none meets another.
  int doubtful_tokens = 4;
  /// Share of a layer's work that one of its stages counts for: it has few of the layer's points.
  double stage_share = 0.25;
  /// Work of a case under a law up to which its runs, which its worst case says nothing of, are drawn: some forty evaluations each.
  double law_draw_work = 2.0;
  /// Samples of the first look; 8 are useless at kSampledFalseAlarm, 64 lower a limit by a sixth. The second has so many times more.
  int samples = 32;
  int second_look = 4;
  /// Samples that pass a kernel in doubt which lies within them.
  int few_samples = 4;
  /// Samples that fail a run in fp32 whose error is kGrossExcess of their limits: a statistic's limit is 39 deviations of eight,
  /// and 8 of 32, at the same probability.
  int gross_samples = 8;
  /// Evaluations with moved inputs, which say how the data carry roundings on.
  int moved_inputs = 2;

  // Cases of a bench, of which the last call is judged, in seconds that its running error took here.
  /// Up to so many a twin is sought.
  double timed_twin_seconds = 1.0;
  /// Up to so many drawn roundings are asked, where the worst case says nothing: some forty take ten times as long.
  double timed_draw_seconds = 20.0;
};

/// The verdict that every verb gives a case line first comes from this policy: gate, repro, fuzz, shrink, mutants, sweep, diagnose,
/// explanations.
inline constexpr JudgePolicy kGatePolicy{.name = "gate"};

/// `repro` looks so at a line that the gate's policy leaves open: ten times the work, four times the heads and tokens. Samples and
/// twins are as many as the gate's, so that what both look at has the same limits.
inline constexpr JudgePolicy kDeepPolicy{.name = "deep",
                                         .held_heads = 96,
                                         .held_microseconds = 1200e3,
                                         .float64_microseconds = 1200e3,
                                         .sequence_seconds = 2.5,
                                         .farthest = 12,
                                         .all_tokens = 1536,
                                         .drawn_tokens = 12,
                                         .all_of_prompt = 256,
                                         .twin_work = 5.0,
                                         .vacuous_twin_work = 20.0,
                                         .draw_work = 1.0,
                                         .vacuous_draw_work = 10.0,
                                         .vacuous_draw_work_in_fp32 = 3.0,
                                         .doubt_work = 2560.0,
                                         .doubt_work_of_large_chunk = 5.0,
                                         .law_draw_work = 20.0};

/// A run that was made elsewhere or before, of which the outputs alone are known (`judge`): the gate's, without a second run.
inline constexpr JudgePolicy kFilePolicy{.name = "file", .reruns = false};

/// The last call of a timed case, of which some heads or sequences are judged (`bench`).
inline constexpr JudgePolicy kBenchPolicy{.name = "bench"};

/// A recorded call of the recurrent family (`judge` of a folder of samestate.capture); the two times are halves of --budget.
inline constexpr JudgePolicy kCapturedPolicy{
    .name = "captured", .held_microseconds = 1e6, .float64_microseconds = 1e6, .reruns = false};

}  // namespace samestate

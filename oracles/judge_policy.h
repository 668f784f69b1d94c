#pragma once

#include <string_view>

#include "reference/sequence.h"

/// A policy says how long and how thoroughly a judge looks at one run: how much of it is compared with its
/// tolerance, and how much work twins and drawn roundings may take. Limits on errors are not here but in
/// oracles/limits.h. docs/policy.md ("How far the judge looks") shows the same table to users;
/// tests/oracles/judge_policy_test.cpp checks that the two agree. A unit of work is that of System::work:
/// about 60 ms of one core (kSecondsOfWork), of which a running error is about 35 ms.
namespace samestate {

/// The initial values are those of the gate. Every judging function takes a policy as an argument.
struct JudgePolicy {
  std::string_view name;  ///< in records, as `policy`

  // Which heads of the recurrent family, and which sequences of named tensors, are compared with their
  // tolerance (harness/run/chosen_heads.h).
  /// At least this many in a case that has more: the ends and block edges of both axes first, then heads that
  /// the seed draws.
  Index held_heads = 24;
  /// The minimum, however long one takes: the first and the last.
  Index fewest_heads = 2;
  /// Microseconds of one core for the bounds of these heads (HeadCost), so that wide heads do not slow a case
  /// down.
  double held_microseconds = 120e3;
  /// The same for the other heads, which are compared with float64 only.
  double float64_microseconds = 120e3;
  /// Seconds for the running error of sequences of named tensors; at least one sequence is compared.
  double sequence_seconds = 0.25;
  /// Added by each of two measures (the whole, the worst row): the heads whose outputs are farthest from
  /// float64.
  Index farthest = 3;

  // Which tokens of a long sequence are compared, if no token depends on another's result
  // (harness/run/chosen_tokens.h).
  /// A sequence with no more tokens than this is compared as a whole. A tolerance takes tens of times as long
  /// as float64.
  Index all_tokens = 384;
  /// The first tokens, where a state or a window begins.
  Index first_tokens = 32;
  /// Tokens on both sides of an edge, of the last token and of each drawn one.
  Index tokens_beside = 8;
  /// The first of the edges, each twice the one before it: tiles and thread blocks end there.
  Index first_edge = 64;
  /// Drawn by the seed, so that many seeds together reach every token.
  Index drawn_tokens = 3;
  /// The same four limits for few tokens that follow a cached prompt: those tokens are what the case is
  /// about.
  Index all_of_prompt = 64;
  Index first_of_prompt = 4;
  Index last_of_prompt = 4;
  Index beside_in_prompt = 1;

  // A second run in pieces, each starting from the state that the kernel itself left (BOUNDS 10.1).
  /// True if the kernel may be called again; a recorded run cannot.
  bool reruns = true;
  /// Tokens per piece of the recurrent form: enough to carry errors, few enough that a state in 16 bits does
  /// not drift.
  Index piece_tokens = 4;
  /// The number of twins with g and beta moved by a unit in the last place; the second look uses the largest
  /// of their drifts. With four keys, or keys on one line, another order of the factors of A turned a median
  /// of 0.159 of a rounding, and moved gates turn as many.
  int twin_nudges = 8;

  // The twin of operators (bounds_operators.md 4, 9), in units of work.
  /// For all sequences of a case, where its contract has rounding points and the worst case passes.
  double twin_work = 0.5;
  /// The same if the worst case is vacuous.
  double vacuous_twin_work = 2.0;
  /// The number of twins with fp32 sums in another order: in the first look, in the second, and of the
  /// nearest twin before it fails.
  int twin_first = 4;
  int twin_second = 32;
  int twin_third = 512;
  /// Up to this many points, every subset is tried as points left out (128 twins); with more, one after the
  /// other and in pairs.
  int twin_subsets = 7;
  /// The largest number of twins evaluated, so that a layer with many points ends.
  int twin_variants = 400;
  /// The nearest twins of a round, with which the next round begins: roundings are independent, so each right
  /// change brings the twin nearer on its own.
  int twin_beam = 3;
  /// The number of twins that are judged besides those of the first round.
  int twin_offered = 24;
  /// The number of twins known from other sequences: one, and those that a sequence's values do not
  /// distinguish from it.
  int twins_known = 3;
  /// Up to this many sequences that failed before any twin was known are judged again with it; a wrong kernel
  /// fails in more.
  Index early_failures = 4;

  // Drawn roundings (bounds_operators.md 3, 12), in units of work.
  /// For all sequences of a case that has rounding points and whose worst case passes.
  double draw_work = 0.1;
  /// If the worst case is vacuous: with rounding points, and without them, when a sample draws every
  /// operation.
  double vacuous_draw_work = 1.0;
  double vacuous_draw_work_in_fp32 = 0.3;
  /// Above this chunk size the last two limits shrink with its square, because a chunk's inverse is evaluated
  /// as its form does it.
  Index large_chunk = 64;
  /// For rows in doubt (few correct runs have any), with chunks up to large_chunk, and beyond: about forty
  /// samples of a case.
  double doubt_work = 256.0;
  double doubt_work_of_large_chunk = 0.5;
  /// Up to this many tokens, a sample's time goes mostly into reading the weights, once for all samples; with
  /// more tokens its work counts multiplied by this number.
  Index few_tokens = 4;
  double many_tokens_factor = 16.0;
  /// The number of tokens in doubt that are drawn alone, if no token depends on another.
  int doubtful_tokens = 4;
  /// The share of a layer's work that one of its stages counts for, since it has few of the layer's points.
  double stage_share = 0.25;
  /// Runs of a case under a law whose worst case is vacuous are drawn if their work is at most this: some
  /// forty evaluations each.
  double law_draw_work = 2.0;
  /// Samples of the first look. 8 are useless at kSampledFalseAlarm; 64 lower a limit by a sixth. The second
  /// look has this many times more.
  int samples = 32;
  int second_look = 4;
  /// The number of samples that are enough to pass a doubtful kernel that lies within them.
  int few_samples = 4;
  /// The number of samples that are enough to fail a run in fp32 whose error is kGrossExcess of their limits:
  /// a statistic's limit is 39 deviations with eight samples and 8 with 32, at the same probability.
  int gross_samples = 8;
  /// Evaluations with moved inputs, which show how the data propagate roundings.
  int moved_inputs = 2;

  // For the last call of a bench, in seconds that its running error took here.
  /// A twin is searched for up to this time.
  double timed_twin_seconds = 1.0;
  /// Roundings are drawn up to this time if the worst case is vacuous: some forty samples take ten times as
  /// long.
  double timed_draw_seconds = 20.0;
};

/// Every verb first judges a case line with this policy: gate, repro, fuzz, shrink, mutants, sweep, diagnose
/// and explanations.
inline constexpr JudgePolicy kGatePolicy{.name = "gate"};

/// `repro` uses this policy for a line that the gate's policy leaves open: ten times the work, four times the
/// heads and tokens. Samples and twins are as many as the gate's, so that whatever both look at has the same
/// limits.
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

/// For a run that was made elsewhere or earlier and of which only the outputs are known (`judge`): the gate's
/// policy, without a second run.
inline constexpr JudgePolicy kFilePolicy{.name = "file", .reruns = false};

/// For the last call of a timed case, in which some heads or sequences are judged (`bench`).
inline constexpr JudgePolicy kBenchPolicy{.name = "bench"};

/// For a recorded call of the recurrent family (`judge` on a folder of samestate.capture); the two times are
/// halves of --budget.
inline constexpr JudgePolicy kCapturedPolicy{
    .name = "captured", .held_microseconds = 1e6, .float64_microseconds = 1e6, .reruns = false};

}  // namespace samestate

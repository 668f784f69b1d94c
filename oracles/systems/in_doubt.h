#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "oracles/judge_policy.h"
#include "oracles/limits.h"
#include "oracles/systems/operator_twin.h"

/// For contracts without rounding points: decides if a run that its worst case passed is worth thirty-two
/// samples (bounds_operators.md 12).
namespace samestate {

/// A row of a run without rounding points whose error is suspicious although it is within the worst case.
struct DoubtfulRow {
  std::string output;
  Index row = 0;
  Index token = -1;    ///< its token in a system whose tokens are independent; else -1
  double times = 0.0;  ///< its error, as a multiple of what moved inputs explain
  bool wide = false;   ///< its tolerance exceeds kWideTolerance of its size
};

/// The rows in doubt, those with the largest error first; none if the worst case leaves no room.
///
/// Room: the row's tolerance is above kRoomOfWorstCase of its size (both as RMS over its columns).
/// Moved: the inputs are x (1 + u xi), with xi uniform in (-1, 1) and independent for each element, u =
/// 2^-24. The change that this makes to a row in float64, sigma_r^2 = mean_m mean_c (y_m - y)_rc^2 + (u
/// RMS(y_r))^2 over JudgePolicy::moved_inputs evaluations, shows how the data propagate roundings. An error
/// is in doubt above kDoubt sigma_r, and that of a single element above four times that; it must also exceed
/// u n of the row's size for the n tokens that it may sum. (If many of a softmax's keys have one score
/// (tokens of small scale), a sum that one weight of 1 begins rounds each of the others to the same side,
/// which no drawn rounding does.)
/// Large: in a row whose tolerance is wide, an element whose error is above a twentieth of kWideTolerance of
/// the row's RMS is in doubt whatever moved inputs make of it, so that a fault of kWideTolerance is noticed
/// in every column that is at least a twentieth of the RMS of its row.
///
/// This function decides nothing: rows in doubt are judged by drawn roundings, which have their own limits,
/// and the errors of all other rows are below kDoubt roundings of the inputs. Rows of undecided tokens, which
/// no sample judges, are left out.
[[nodiscard]] std::vector<DoubtfulRow> doubtful_rows(const TwinSubject& of, const Tensors<double>& actual,
                                                     std::uint64_t seed, const JudgePolicy& policy);

/// The wide outputs: those whose worst case, over the rows that are decided and in the format's range, is
/// above kWideTolerance of the expected values (both RMS).
[[nodiscard]] std::vector<std::string> wide_outputs(const OperatorOracle& oracle);

/// Some tokens of one sequence as a sequence of their own, for a system whose tokens are independent. They
/// are judged like the whole sequence; outputs that are sums over all tokens are not among theirs.
struct TokensAlone {
  std::vector<Index> tokens;  ///< their indices in the whole sequence, ascending
  Call call;
  Tensors<double> inputs, actual;
  OperatorOracle oracle;
};
/// The tokens of the first rows in doubt, at most `most` of them.
[[nodiscard]] TokensAlone tokens_in_doubt(const TwinSubject& of, const Tensors<double>& actual,
                                          const std::vector<DoubtfulRow>& rows, std::size_t most);

/// The largest number of tokens that one token depends on, including itself.
[[nodiscard]] Index tokens_met(const TwinSubject& of);

/// True if more than kAlikeTokens tokens of an input are copies of one token: a kernel makes the same
/// roundings for each of them, and their sum is n times one, whereas drawn roundings cancel to sqrt(n).
[[nodiscard]] bool roundings_repeat(const TwinSubject& of);

}  // namespace samestate

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "oracles/judge_policy.h"
#include "oracles/limits.h"
#include "oracles/systems/operator_twin.h"

/// Of a contract without rounding points: whether a run that its worst case passed is worth thirty-two samples
/// (bounds_operators.md 12).
namespace samestate {

/// A row of a run without rounding points whose error the worst case has room for.
struct DoubtfulRow {
  std::string output;
  Index row = 0;
  Index token = -1;    ///< of a system whose tokens do not meet; else -1
  double times = 0.0;  ///< its error, over what moved inputs explain
  bool wide = false;   ///< its tolerance is above kWideTolerance of its size
};

/// The rows in doubt, those with the largest error first; none where the worst case has no room.
///
/// Room: the row's tolerance is above kRoomOfWorstCase of its size (RMS over its columns both).
/// Moved: the inputs are x (1 + u xi), xi uniform in (-1, 1) and one for each place, u = 2^-24; what that makes of a row in
/// float64, sigma_r^2 = mean_m mean_c (y_m - y)_rc^2 + (u RMS(y_r))^2 over JudgePolicy::moved_inputs evaluations, is how the data carry
/// roundings on. An error is in doubt above kDoubt sigma_r, a single element's above four times that; and above u n of the
/// row's size for the n tokens that it may sum: where many of a softmax's keys have one score (tokens of small scale), a sum
/// that one weight of 1 begins rounds each of the others to the same side, which no drawn rounding does.
/// Large: of a row whose tolerance is wide, an element whose error is above a twentieth of kWideTolerance of the row's RMS is in
/// doubt whatever moved inputs make of it, so that a fault of kWideTolerance is in every column that is at least a twentieth
/// of its row's RMS anywhere.
///
/// It decides nothing: what is in doubt is judged by drawn roundings, which have their limits by themselves, and what is not
/// errs by less than kDoubt roundings of the inputs. Rows of undecided tokens, which no sample judges, are left out.
[[nodiscard]] std::vector<DoubtfulRow> doubtful_rows(const TwinSubject& of, const Tensors<double>& actual,
                                                     std::uint64_t seed, const JudgePolicy& policy);

/// Outputs that are wide: whose worst case, over the rows that are decided and in the format's range, is above kWideTolerance of what is expected (RMS both).
[[nodiscard]] std::vector<std::string> wide_outputs(const OperatorOracle& oracle);

/// Tokens of one sequence by themselves, of a system whose tokens do not meet: what judges them is what judges the whole.
struct TokensAlone {
  std::vector<Index> tokens;  ///< of the whole, ascending
  Call call;
  Tensors<double> inputs, actual;
  OperatorOracle oracle;
};
/// The tokens of the first rows in doubt, at most so many.
[[nodiscard]] TokensAlone tokens_in_doubt(const TwinSubject& of, const Tensors<double>& actual,
                                          const std::vector<DoubtfulRow>& rows, std::size_t most);

/// The most tokens that one of them meets, itself too.
[[nodiscard]] Index tokens_met(const TwinSubject& of);

/// Whether more than kAlikeTokens tokens of an input are one token again and again: a kernel makes the same roundings of each,
/// and their sum is n of one, where drawn ones cancel to sqrt(n).
[[nodiscard]] bool roundings_repeat(const TwinSubject& of);

}  // namespace samestate

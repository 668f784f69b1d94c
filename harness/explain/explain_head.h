#pragma once

#include <string>
#include <vector>

#include "harness/cases/resolved.h"
#include "oracles/batch.h"
#include "oracles/judge.h"
#include "oracles/systems/family.h"

/// The parts of explain() for the recurrent family.
namespace samestate {

/// An error is attributed to a place only if it is this many times larger than the largest error that counts
/// as right: when all errors are about the same size, some are the largest by chance, and they are somewhere.
inline constexpr double kAnotherThing = 3.0;

/// One head of a run next to its expected values.
struct HeadDifference {
  Index sequence = 0;
  Index head = 0;
  Trajectory<double> exact;
  Matrix<double> o, state;    ///< the kernel's values
  Vector<double> row;         ///< [T] tolerance of each row of o; 0 in the exact regimes
  std::vector<Index> tokens;  ///< the wrong tokens
  bool state_wrong = false;
  double worst_ratio = 0.0;  ///< for a row, or for the state if no row is wrong
  double right_ratio = 0.0;  ///< the largest among values that are right
  Index worst_token = -1;    ///< -1 means the state
  [[nodiscard]] bool wrong() const { return !tokens.empty() || state_wrong; }
};

/// Sets tokens, state_wrong, worst_ratio and worst_token from the other members.
void find_wrong(HeadDifference& d, double state_tolerance);

/// Returns a text such as "sequence 0, head 1: o from token 16 on (chunk 2, its token 0), 4 of 20 tokens:
/// 16..19; and the final state". The chunks are those of `r`.
[[nodiscard]] std::string where_text(const Resolved& r, const HeadDifference& d);

/// Returns the differences of every head of a run, including heads that are right. If `path` is given, the
/// run followed it instead of the case's path, on other data; the regime is then not used, and values without
/// a bound do not count as wrong.
[[nodiscard]] std::vector<HeadDifference> head_differences(const Resolved& r, const Family& family,
                                                           const Batch& batch, const Outputs& outputs,
                                                           const Path* path = nullptr);

/// Returns the patterns in where the wrong places are (kAnotherThing).
[[nodiscard]] std::vector<std::string> place_patterns(const Resolved& r,
                                                      const std::vector<HeadDifference>& heads);

/// Returns the patterns in the values themselves.
[[nodiscard]] std::vector<std::string> value_patterns(const Resolved& r, const Outputs& outputs,
                                                      const std::vector<HeadDifference>& heads);

/// True if the case's kernel sums g over chunks.
[[nodiscard]] bool sums_gates(const Resolved& r);

/// Finds constant factors and returns sentences such as "the final state is the right one times 0.999", also
/// for o, and for each head with its own factor if they share none. Only wrong rows and states are
/// considered, or all of them with `everywhere`. `summed`: chunks sum g, so that a factor of the state near 1
/// is explained by another sum of g.
[[nodiscard]] std::vector<std::string> factor_patterns(const std::vector<HeadDifference>& heads,
                                                       bool everywhere, bool summed);

/// Returns the single mistakes in the equation that give the kernel's values.
[[nodiscard]] std::vector<std::string> mistakes(const Resolved& r, const Family& family, const Batch& batch,
                                                const std::vector<HeadDifference>& heads);

/// The factor between actual and expected values if one number other than 1 explains the difference; else
/// NaN. Values that are not finite do not count if they are a minority.
[[nodiscard]] double constant_factor(const Matrix<double>& expected, const Matrix<double>& actual);

/// Returns "from the second chunk on: .. errors begin at token 64, the first of the second chunk" if chunks
/// have `chunk` of the `tokens` tokens and the first wrong one (they are sorted) is in the second chunk; else
/// an empty text. If only one chunk is wrong, its wrong tokens must reach its end.
[[nodiscard]] std::string second_chunk_text(const std::vector<Index>& wrong, Index chunk, Index tokens);

/// Returns "only sequence 1 of 2", "every sequence but the first" or "only from sequence 2 on": which of the
/// sequences with tokens are wrong. Both lists are sorted. Empty if all are wrong, or if none of these
/// describes them.
[[nodiscard]] std::string sequences_text(const std::vector<Index>& wrong, const std::vector<Index>& all);

/// Formats sorted numbers as "0, 2..5 and 9", with at most four ranges.
[[nodiscard]] std::string ranges_text(const std::vector<Index>& sorted);

}  // namespace samestate

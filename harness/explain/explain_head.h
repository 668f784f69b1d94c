#pragma once

#include <string>
#include <vector>

#include "harness/cases/resolved.h"
#include "oracles/batch.h"
#include "oracles/judge.h"
#include "oracles/systems/family.h"

/// Parts of explain() for the recurrent family.
namespace samestate {

/// What is wrong is in a place only where it is so many times farther off than the farthest of what is right: of many that
/// all are off by about as much a few are the farthest, and they lie somewhere.
inline constexpr double kAnotherThing = 3.0;

/// One head of a run beside what it should be.
struct HeadDifference {
  Index sequence = 0;
  Index head = 0;
  Trajectory<double> exact;
  Matrix<double> o, state;    ///< the kernel's
  Vector<double> row;         ///< [T] tolerance of a row of o; 0 in the exact regimes
  std::vector<Index> tokens;  ///< wrong ones
  bool state_wrong = false;
  double worst_ratio = 0.0;  ///< of a row, or of the state where no row is wrong
  double right_ratio = 0.0;  ///< the largest of what is right
  Index worst_token = -1;    ///< -1: the state
  [[nodiscard]] bool wrong() const { return !tokens.empty() || state_wrong; }
};

/// Fills in tokens, state_wrong, worst_ratio and worst_token from the rest.
void find_wrong(HeadDifference& d, double state_tolerance);

/// "sequence 0, head 1: o from token 16 on (chunk 2, its token 0), 4 of 20 tokens: 16..19; and the final
/// state", the chunks those of `r`.
[[nodiscard]] std::string where_text(const Resolved& r, const HeadDifference& d);

/// Every head of a run, the right ones too. With `path` the run went along it instead of the case's, on data
/// of its own: the regime is not read, and what has no bound is not wrong.
[[nodiscard]] std::vector<HeadDifference> head_differences(const Resolved& r, const Family& family,
                                                           const Batch& batch, const Outputs& outputs,
                                                           const Path* path = nullptr);

/// Names of the patterns in where the wrong places are (kAnotherThing).
[[nodiscard]] std::vector<std::string> place_patterns(const Resolved& r,
                                                      const std::vector<HeadDifference>& heads);

/// Names of the patterns in the values themselves.
[[nodiscard]] std::vector<std::string> value_patterns(const Resolved& r, const Outputs& outputs,
                                                      const std::vector<HeadDifference>& heads);

/// "the final state is the right one times 0.999", the same of o, of each head by a factor of its own where they share
/// none. Of the wrong rows and states; with `everywhere` of all.
[[nodiscard]] std::vector<std::string> factor_patterns(const std::vector<HeadDifference>& heads,
                                                       bool everywhere);

/// The single mistakes in the equation that give the kernel's values.
[[nodiscard]] std::vector<std::string> mistakes(const Resolved& r, const Family& family, const Batch& batch,
                                                const std::vector<HeadDifference>& heads);

/// The factor between actual and expected values where one number, not 1, explains the difference; else NaN. Values
/// that are not finite, a minority, do not count.
[[nodiscard]] double constant_factor(const Matrix<double>& expected, const Matrix<double>& actual);

/// "from the second chunk on: .. errors begin at token 64, the first of the second chunk" where chunks have `chunk` of the
/// `tokens` and the first of the wrong ones (sorted) lies in the second chunk; else empty. A single chunk's wrong tokens
/// must reach its end.
[[nodiscard]] std::string second_chunk_text(const std::vector<Index>& wrong, Index chunk, Index tokens);

/// "0, 2..5 and 9"; at most four pieces.
[[nodiscard]] std::string ranges_text(const std::vector<Index>& sorted);

}  // namespace samestate

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "oracles/batch.h"
#include "oracles/judge.h"
#include "oracles/systems/operator.h"

/// The runs and comparisons of a law, kept for the explanation of a failure: head by head for the recurrent
/// family, output by output for named tensors.
namespace samestate {

/// One run of the kernel, with what is needed to judge it.
struct LawRun {
  Batch batch;
  Path path;
  Outputs out;
};

/// One head of a run, or of the values that a law demands. A packed run is judged sequence by sequence.
struct LawHead {
  HeadOracle oracle;
  Matrix<double> o, state;
  std::int64_t sequence = 0;  ///< in its own run
  std::int64_t head = 0;
};

/// Two heads that must agree: `rows` rows of o, starting at a row of each, and with `states` their final
/// states.
struct LawPair {
  LawHead first, second;
  Index first_row = 0, second_row = 0, rows = 0;
  bool states = false;
  std::int64_t sequence = 0;  ///< as the judgement names them
  std::int64_t head = 0;
};

struct LawComparison {
  /// How the second run differs from the first, if an explanation needs it.
  enum class Change { other, calls, future, reset, slots };
  std::string first, second;                    ///< the two sides of the comparison, in words
  std::optional<LawRun> first_run, second_run;  ///< absent if the side is a formula or the sum of two runs
  Change change = Change::other;
  Index place = -1;  ///< the token before which calls are cut, from which on tokens changed, or that forgets
  bool at_most = false;  ///< the second may also be less than the first
  std::vector<LawPair> pairs;
};

struct LawTrace {
  std::vector<LawComparison> comparisons;
  std::vector<std::string> program;  ///< for `serving`: its calls, up to the first that left a wrong result
};

/// The two runs of a comparison of the rows that no request owns, before and after a call.
inline constexpr const char* kRowsGiven = "the rows of the pool that are not the slot's, as they were given";
inline constexpr const char* kRowsLeft = "as the call left them";

/// An output of one sequence of a run, and what the equations allow it to be. Rows x last extent.
struct TensorLawSide {
  Matrix<double> values, exact, tolerance;
};

/// Two of them that must agree in their first `rows` rows.
struct TensorLawPair {
  std::string output;
  Index sequence = 0;  ///< as the judgement names it
  Index rows = 0;
  TensorLawSide first, second;
};

struct TensorLawComparison {
  /// In what the second run is another than the first.
  enum class Change { calls, future, order, history, slots, packing, pool, cotangents };
  Change change = Change::calls;
  std::string first, second;  ///< the two runs, in words
  Index place = -1;           ///< the token before which calls are cut or from which on tokens changed
  std::vector<TensorLawPair> pairs;
  std::string words;  ///< a difference in bits that no pair shows; empty if there is none
};

using TensorLawTrace = std::vector<TensorLawComparison>;

}  // namespace samestate

#pragma once

#include <string>
#include <vector>

#include "oracles/systems/operator.h"

/// The runs and comparisons of a law of named tensors, kept for the explanation of a failure.
namespace samestate {

/// An output of one sequence of a run, and its tolerance. Rows x last extent.
struct TensorLawSide {
  Matrix<double> values, exact, tolerance;
};

/// Two outputs that must agree in their first `rows` rows.
struct TensorLawPair {
  std::string output;
  Index sequence = 0;  ///< as the judgement names it
  Index rows = 0;
  TensorLawSide first, second;
};

struct TensorLawComparison {
  /// How the second run differs from the first.
  enum class Change { calls, future, order, history, slots, packing, pool };
  Change change = Change::calls;
  std::string first, second;  ///< the two runs, in words
  Index place = -1;           ///< the token before which calls are cut, or from which on tokens changed
  std::vector<TensorLawPair> pairs;
  std::string words;  ///< how the runs differ bit for bit, which no pair shows; empty if they do not
};

using TensorLawTrace = std::vector<TensorLawComparison>;

}  // namespace samestate

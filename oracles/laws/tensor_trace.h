#pragma once

#include <string>
#include <vector>

#include "oracles/systems/operator.h"

/// What a law of named tensors ran and compared, kept for the explanation of a failure.
namespace samestate {

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
  enum class Change { calls, future, order, history, slots, packing, pool };
  Change change = Change::calls;
  std::string first, second;  ///< the two runs, in words
  Index place = -1;           ///< the token before which calls are cut or from which on tokens changed
  std::vector<TensorLawPair> pairs;
  std::string words;  ///< what parts the runs bit for bit alone, which no pair shows; empty: nothing
};

using TensorLawTrace = std::vector<TensorLawComparison>;

}  // namespace samestate

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "oracles/batch.h"
#include "oracles/judge.h"

/// The runs and comparisons of a law, kept for the explanation of a failure.
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
  std::string first, second;                    ///< what is compared, in words
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

}  // namespace samestate

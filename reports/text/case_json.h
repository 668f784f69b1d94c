#pragma once

#include <string>
#include <utility>
#include <vector>

#include "harness/records/record.h"

namespace samestate {

/// What is known of a run that differs, as lists: where, what it looks like, values, terms of the bound.
struct CaseExplanation {
  struct Value {
    std::string place;
    double expected, actual;
  };
  std::vector<std::string> differs = {}, looks_like = {};
  std::vector<std::string> tried = {};  ///< how much was run to find what it looks like
  std::vector<Value> values = {};
  std::vector<std::pair<std::string, double>> terms = {};
  std::string contract =
      {};  ///< what the contracts near the case's say of a run that fails the twin; empty: not asked
};

/// One object in one line, so that many are JSON Lines: {"line", "kernel", .. "verdict", "gate", "ratio", "error",
/// "measure", "bound", "worst": {..}, "expected", "actual", "reason", .., "command", "differs", "looks_like", ..}.
/// A number that is none is a string: "inf", "nan".
[[nodiscard]] std::string case_json(const Record& record, const CaseExplanation& explanation);

/// Such an object with what a deeper look at the same line found: "deeper": {"policy", "verdict", "gate", "ratio", "error", "bound",
/// "reason", "seconds", and "held" .. where not all was held}. The fields beside it stay those of the first look.
[[nodiscard]] std::string with_deeper(const std::string& case_object, const Record& deeper);

}  // namespace samestate

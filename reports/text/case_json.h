#pragma once

#include <string>
#include <utility>
#include <vector>

#include "harness/records/record.h"

namespace samestate {

/// The explanation of a run that differs, as lists: where it differs, what it looks like, values, terms of
/// the bound.
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
      {};  ///< what contracts near the case's say about a run that fails the twin; empty if not requested
};

/// One object on one line, so that many of them are JSON Lines: {"line", "kernel", .. "verdict", "gate",
/// "ratio", "error", "measure", "bound", "worst": {..}, "expected", "actual", "reason", .., "command",
/// "differs", "looks_like", ..}. Numbers that are not finite are strings: "inf", "nan".
[[nodiscard]] std::string case_json(const Record& record, const CaseExplanation& explanation);

/// Such an object with the result of a deeper look at the same line: "deeper": {"policy", "verdict", "gate",
/// "ratio", "error", "bound", "reason", "seconds", and "held" .. if not everything was compared}. The other
/// fields remain those of the first look.
[[nodiscard]] std::string with_deeper(const std::string& case_object, const Record& deeper);

}  // namespace samestate

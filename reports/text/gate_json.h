#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "harness/records/record.h"

namespace samestate {

/// What `gate --json` and `fuzz --json` print:
/// {"cases", "judged", "verdicts": {name: cases}, "exit", "seconds", "seed", "failures": [{"kernel", "form", "law",
/// "cause", "only", "cases", "line", "command", "gate", "ratio", "error", "bound", "reason", "looks_like"} ..]},
/// one failure a kind (failure_groups.h). A number that is none is a string: "inf", "nan".
struct RunFigures {
  double seconds = 0.0;
  std::string seed;
  int exit = 0;
  std::string complete = {};  ///< why not all cases were run; empty: they were
};
[[nodiscard]] std::string gate_json(std::span<const Record> records, const RunFigures& figures);
/// The same of a search, whose failures are the shrunk ones.
[[nodiscard]] std::string search_json(const std::map<Verdict, std::int64_t>& counts,
                                      std::span<const Record> shrunk, const RunFigures& figures);

}  // namespace samestate

#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "harness/records/record.h"
#include "reports/records/run.h"

namespace samestate {

/// The output of `gate --json` and `fuzz --json`:
/// {"cases", "judged", "verdicts": {name: cases}, "exit", "not_complete", "remarks", "seconds", "seed",
/// "failures": [{"kernel", "form", "law",
/// "cause", "only", "cases", "line", "command", "gate", "ratio", "error", "bound", "reason", "looks_like"}
/// ..]},
/// with one failure of each kind (failure_groups.h). Numbers that are not finite are strings: "inf", "nan".
[[nodiscard]] std::string gate_json(std::span<const Record> records, const RunEnd& end);
/// The same for a search, whose failures are the shrunk ones.
[[nodiscard]] std::string search_json(const std::map<Verdict, std::int64_t>& counts,
                                      std::span<const Record> shrunk, const RunEnd& end);

}  // namespace samestate

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "harness/records/spent.h"
#include "oracles/verdict.h"

namespace samestate {

/// The part of a record that a worker reports about one case, because it does not follow from the case.
struct CaseResult {
  Judgement judgement;
  double seconds = 0.0;
  std::uint64_t edges = 0;   ///< coverage edges (edges_of)
  std::string gpu = {};      ///< the device of the process that ran it; empty if it had none of its own
  std::string outputs = {};  ///< Record::outputs
  std::string ran_by = {};   ///< Record::ran_by
  Spent spent = {};          ///< Record::spent
  std::string tuned = {};    ///< Record::tuned
  std::string policy = {};   ///< Record::policy
};

/// One tab-separated line without a newline, which can be read back bit for bit: used between processes and
/// in checkpoints.
[[nodiscard]] std::string result_text(const CaseResult& finding);

/// Reads such a line; lines of older versions lack some of the last fields: gpu, outputs, ran_by, spent,
/// tuned and policy. Throws Error that says which field is damaged.
[[nodiscard]] CaseResult parse_result(std::string_view text);

}  // namespace samestate

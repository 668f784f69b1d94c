#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "harness/records/spent.h"
#include "oracles/verdict.h"

namespace samestate {

/// What a worker reports of one case: the part of a record that does not follow from the case.
struct CaseResult {
  Judgement judgement;
  double seconds = 0.0;
  std::uint64_t edges = 0;   ///< edges_of
  std::string gpu = {};      ///< of the process that ran it; empty: it had none of its own
  std::string outputs = {};  ///< Record::outputs
  std::string ran_by = {};   ///< Record::ran_by
  Spent spent = {};          ///< Record::spent
  std::string tuned = {};    ///< Record::tuned
  std::string policy = {};   ///< Record::policy
};

/// One line without its end, tab-separated, that comes back bit for bit: between processes and in
/// checkpoints.
[[nodiscard]] std::string result_text(const CaseResult& finding);

/// The finding of such a line; one of before lacks gpu, outputs, ran_by, spent, tuned and policy, or
/// the last of them. Throws Error that says which field is damaged.
[[nodiscard]] CaseResult parse_result(std::string_view text);

}  // namespace samestate

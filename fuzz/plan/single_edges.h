#pragma once

#include "fuzz/plan/edge_cases.h"

/// Lists of edge cases in which one choice takes a special value and all others are as in the kernel's
/// starting case. Each is a row of plan_lists(), which says what it adds and why; `most` is PlanList::most.
namespace samestate {

void put_lengths(EdgeCases& to, const Case& base, double most);
void put_calls(EdgeCases& to, const Case& base, double most);
void put_sizes(EdgeCases& to, const Case& base, double most);
void put_widths_between_tiles(EdgeCases& to, const Case& base, double most);
void put_head_groups(EdgeCases& to, const Case& base, double most);
void put_reciprocals(EdgeCases& to, const Case& base, double most);
void put_settings(EdgeCases& to, const Case& base, double most);
void put_chunks(EdgeCases& to, const Case& base, double most);
void put_regimes(EdgeCases& to, const Case& base, double most);
void put_laws(EdgeCases& to, const Case& base, double most);
void put_many_tokens(EdgeCases& to, const Case& base, double most);

}  // namespace samestate

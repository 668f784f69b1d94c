#pragma once

#include "fuzz/plan/edge_cases.h"
#include "harness/systems/model_shapes.h"

/// Lists of edge cases in which several choices are special at once: sizes beyond a tile together, caches,
/// the shapes of models. Each is a row of plan_lists(), which says what it adds and why; `most` is
/// PlanList::most.
namespace samestate {

/// The rows of family_calls() that are tried in that way; nothing if the system is not of the family.
void put_family_calls(EdgeCases& to, FamilyCall::Tried tried);
void put_family_regimes(EdgeCases& to, const Case& base, double most);
void put_long_cache(EdgeCases& to, const Case& base, double most);
void put_cache_at_tile_end(EdgeCases& to, const Case& base, double most);
void put_beyond_tiles(EdgeCases& to, const Case& base, double most);
void put_second_sequence(EdgeCases& to, const Case& base, double most);
void put_beyond_cache(EdgeCases& to, const Case& base, double most);
void put_full_chunks(EdgeCases& to, const Case& base, double most);
void put_regimes_beyond_tiles(EdgeCases& to, const Case& base, double most);
void put_models(EdgeCases& to, const Case& base, double most);
void put_decoded_models(EdgeCases& to, const Case& base, double most);
void put_repeated_model(EdgeCases& to, const Case& base, double most);

}  // namespace samestate

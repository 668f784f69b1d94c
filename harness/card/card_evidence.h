#pragma once

#include "harness/card/card_distance.h"
#include "harness/records/card_row.h"
#include "oracles/contract_points.h"

namespace samestate {

/// How far the kernel is from each other value of the point, compared with its distance from the card.
/// Distances below what an order of sums makes count as that much; for a kernel that sums as the twin does,
/// the floor is what a few roundings make.
[[nodiscard]] CardPoint evidence_of(const ContractPoint& point, const Contract& card, CardDistance& distance);

}  // namespace samestate

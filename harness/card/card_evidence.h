#pragma once

#include "harness/card/card_distance.h"
#include "harness/records/card_row.h"
#include "oracles/contract_points.h"

namespace samestate {

/// How far the kernel is from each other value of the point, beside how far it is from the card: distances below what an
/// order of sums makes count as that much; of a kernel that sums as the twin does, below what few roundings make.
[[nodiscard]] CardPoint evidence_of(const ContractPoint& point, const Contract& card, CardDistance& distance);

}  // namespace samestate

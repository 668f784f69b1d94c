#pragma once

#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

#include "oracles/contract_points.h"
#include "oracles/contracts.h"

namespace samestate::testing {

/// A named contract with up to `changes` points moved, all of it the grammar's.
inline const Contract& random_contract(std::mt19937_64& random, int changes, Format input) {
  std::vector<const Contract*> bases;
  for (const NamedContract& row : contracts()) {
    if (row.contract.input == input) bases.push_back(&row.contract);
  }
  Contract c = *bases[random() % bases.size()];
  for (int n = 0; n < changes; ++n) {
    const auto points = contract_points();
    const ContractPoint& point = points[random() % points.size()];
    if (point.name == "input" || point.name == "card") continue;
    (void)changed(c, point.name, point.values[random() % point.values.size()]);
  }
  return contract_of(c);
}

}  // namespace samestate::testing

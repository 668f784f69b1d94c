#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/records/card_row.h"
#include "harness/run/kernel_table.h"

namespace samestate {

/// The regimes in which a card is checked on the gate's own data.
[[nodiscard]] std::vector<std::string_view> card_regimes(const KernelRow& kernel);

/// A case of the gate in a regime: the kernel is called as `declared`, and its outputs are judged under
/// `card`.
[[nodiscard]] CardCase judged_under(const KernelTable& table, const KernelRow& kernel,
                                    const std::string& declared, const std::string& card,
                                    std::string_view regime);

}  // namespace samestate

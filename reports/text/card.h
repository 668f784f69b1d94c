#pragma once

#include <cstddef>
#include <string>

#include "harness/records/card_row.h"

/// The output of `samestate card`: a numerics card read from outputs.
namespace samestate {

/// True if a case of the gate shows that the card is not the kernel's.
[[nodiscard]] bool failed_under_it(const CardCase& c);

/// True if the card explains the probes and no case of the gate fails under it: exit 0.
[[nodiscard]] bool card_holds(const CardRow& card);

/// For a terminal whose tables have `width` columns (0: any number): one line per point with the value found and the
/// evidence, what cannot be distinguished and why, the probes that were refused, the cases of the gate, what the fit rests
/// on, the meaning of the exit code, and the contract to paste.
[[nodiscard]] std::string card_text(const CardRow& card, std::size_t width = 0);
[[nodiscard]] std::string card_json(const CardRow& card);

}  // namespace samestate

#pragma once

#include <string>

#include "harness/records/card_row.h"

/// A numerics card that was read from outputs: what `samestate card` shows.
namespace samestate {

/// Whether a case of the gate says that the card is not the kernel's.
[[nodiscard]] bool failed_under_it(const CardCase& c);

/// Whether the card explains the probes and no case of the gate fails under it: exit 0.
[[nodiscard]] bool card_holds(const CardRow& card);

/// For a terminal: a line a point with the value found and the evidence, what cannot be told apart and why, the probes
/// that were refused, the cases of the gate, what the fit rests on, what the exit code stands for, and the contract to paste.
[[nodiscard]] std::string card_text(const CardRow& card);
[[nodiscard]] std::string card_json(const CardRow& card);

}  // namespace samestate

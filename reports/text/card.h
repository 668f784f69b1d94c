#pragma once

#include <string>

#include "harness/records/card_row.h"

/// A numerics card that was read from outputs: what `samestate card` shows.
namespace samestate {

/// For a terminal: a line a point with the value found and the evidence, what cannot be told apart and why, the probes
/// that were refused, the cases of the gate, and the contract to paste.
[[nodiscard]] std::string card_text(const CardRow& card);
[[nodiscard]] std::string card_json(const CardRow& card);

}  // namespace samestate

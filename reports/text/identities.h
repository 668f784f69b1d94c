#pragma once

#include <span>
#include <string>

#include "harness/records/identity_row.h"

/// The output of `samestate identities`: relations between the forms of the references.
namespace samestate {

/// For a terminal: one line per identity, then how many are not as expected, and the largest residual that
/// should vanish.
[[nodiscard]] std::string identities_text(std::span<const IdentityRow> rows);
/// An array with one object per identity.
[[nodiscard]] std::string identities_json(std::span<const IdentityRow> rows);

}  // namespace samestate

#pragma once

#include <span>
#include <string>

#include "harness/records/identity_row.h"

/// Relations between the forms of the references: what `samestate identities` shows.
namespace samestate {

/// For a terminal: a line an identity, then how many are not as expected and the largest residual that should
/// vanish.
[[nodiscard]] std::string identities_text(std::span<const IdentityRow> rows);
/// An array of objects, one an identity.
[[nodiscard]] std::string identities_json(std::span<const IdentityRow> rows);

}  // namespace samestate

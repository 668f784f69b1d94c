#pragma once

#include <span>
#include <string_view>

namespace samestate {

/// A form of the case line for a person: what its evaluation is.
struct FormWords {
  std::string_view name;
  std::string_view
      systems;  ///< where the name means this, apart by blanks; empty: in all others that have it
  std::string_view means;
};

[[nodiscard]] std::span<const FormWords> form_words();

/// What the form is in that system; empty where no row says it.
[[nodiscard]] std::string_view form_means(std::string_view system, std::string_view form);

/// Whether `name` is in a list of names that are apart by blanks.
[[nodiscard]] bool lists(std::string_view list, std::string_view name);

}  // namespace samestate

#pragma once

#include <span>
#include <string_view>

namespace samestate {

/// A form of the case line in words: how it is evaluated.
struct FormWords {
  std::string_view name;
  std::string_view
      systems;  ///< the systems in which the name has this meaning, separated by blanks; empty for all others
                ///< that have it
  std::string_view means;
};

[[nodiscard]] std::span<const FormWords> form_words();

/// The meaning of the form in that system; empty if no row has it.
[[nodiscard]] std::string_view form_means(std::string_view system, std::string_view form);

/// True if `name` is in a list of names separated by blanks.
[[nodiscard]] bool lists(std::string_view list, std::string_view name);

}  // namespace samestate

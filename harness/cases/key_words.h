#pragma once

#include <span>
#include <string>
#include <string_view>

namespace samestate {

/// A key of the case line for a person: what stands beside its row in the table of keys.
struct KeyWords {
  std::string_view name;
  std::string_view takes;  ///< which values
  std::string_view means;
};

/// One for each row of keys(), in its order.
[[nodiscard]] std::span<const KeyWords> key_words();

/// The grammar: version, order, every key with its values, default and meaning, the sizes that systems have of their
/// own, the grammar of filters. The page docs/case-line.md.
[[nodiscard]] std::string case_line_markdown();

}  // namespace samestate

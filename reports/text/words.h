#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace samestate {

/// A word of the output or of the pages, and its single meaning, in Markdown with other words in *italics*.
struct Word {
  std::string_view word;
  std::string_view means;
};

/// The glossary, with related words next to each other: the table behind docs/words.md and `explain`.
[[nodiscard]] std::span<const Word> words();

/// Finds a word regardless of capitals, a plural s, or a Greek letter; null if there is none.
[[nodiscard]] const Word* word_named(std::string_view name);

/// Up to `most` words with similar names, or that have it in their meaning.
[[nodiscard]] std::vector<std::string_view> words_near(std::string_view name, std::size_t most = 6);

/// A meaning without markup: links are replaced by their text, and stars and backquotes removed.
[[nodiscard]] std::string plain_text(std::string_view markdown);

/// The page docs/words.md.
[[nodiscard]] std::string words_markdown();

}  // namespace samestate

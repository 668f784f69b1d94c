#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace samestate {

/// A word of the output or of the pages, and its one meaning: in Markdown, other words in *italics*.
struct Word {
  std::string_view word;
  std::string_view means;
};

/// The glossary, with related words next to each other; it is the only table behind docs/lookup/words.md and
/// `explain`.
[[nodiscard]] std::span<const Word> words();

/// Finds a word, ignoring its capitals, an s at its end and whether a Greek letter is spelt out; null if
/// there is none.
[[nodiscard]] const Word* word_named(std::string_view name);

/// Up to `most` words whose names are near, or that have it in their meaning.
[[nodiscard]] std::vector<std::string_view> words_near(std::string_view name, std::size_t most = 6);

/// A meaning without markup: links by their text, no stars and backquotes.
[[nodiscard]] std::string plain_text(std::string_view markdown);

/// The page docs/lookup/words.md.
[[nodiscard]] std::string words_markdown();

}  // namespace samestate

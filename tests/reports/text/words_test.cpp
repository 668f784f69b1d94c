#include "reports/text/words.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>

namespace samestate {
namespace {

TEST(Words, OneMeaningEach) {
  std::set<std::string_view> seen;
  for (const Word& row : words()) {
    EXPECT_TRUE(seen.insert(row.word).second) << row.word << " stands twice";
    EXPECT_GT(row.means.size(), 15U) << row.word;
    EXPECT_EQ(row.means.find('\n'), std::string_view::npos) << row.word;
  }
}

// A word in italics that has no row of its own sends its reader nowhere.
TEST(Words, EveryWordInItalicsHasARow) {
  static const std::regex italics(R"((^|[^*])\*([^* ][^*]*)\*([^*]|$))");
  for (const Word& row : words()) {
    const std::string text(row.means);
    for (std::sregex_iterator it(text.begin(), text.end(), italics), end; it != end; ++it) {
      const std::string word = (*it)[2];
      EXPECT_NE(word_named(word), nullptr) << "*" << word << "* in " << row.word;
    }
  }
}

TEST(Words, AreFoundInAnyDress) {
  for (const char* name : {"Row", "rows", "λ", "LAMBDA", "bp", "Bp", "stands_out", "Laws", "likely cause"})
    EXPECT_NE(word_named(name), nullptr) << name;
  EXPECT_EQ(word_named("nosuch"), nullptr);
  const auto near = words_near("vacous");
  EXPECT_NE(std::find(near.begin(), near.end(), "vacuous"), near.end());
}

TEST(Words, PlainTextHasNoMarkup) {
  EXPECT_EQ(plain_text("*a* of `b` ([bounds.md](../understand/theory/bounds.md), 7)"),
            "a of b (docs/understand/theory/bounds.md, 7)");
  EXPECT_EQ(plain_text("[subjects.md](subjects.md)"), "docs/lookup/subjects.md");
  EXPECT_EQ(plain_text("[ARCHITECTURE.md](../../ARCHITECTURE.md)"), "ARCHITECTURE.md");
}

}  // namespace
}  // namespace samestate

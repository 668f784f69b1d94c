#include "reports/text/aligned.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace samestate {
namespace {

std::size_t longest_line(const std::string& text) {
  std::istringstream lines(text);
  std::size_t longest = 0;
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

/// The words of a text in its order.
std::vector<std::string> words_in(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

TEST(Wrapped, BreaksBetweenWordsAlone) {
  EXPECT_EQ(wrapped("one two three four", 9), "one two\nthree\nfour");
  EXPECT_EQ(wrapped("one two three four", 9, 2, 4), "one\n  two\n  three\n  four");
  EXPECT_EQ(wrapped("a kernel.with.a.long.name b", 8), "a\nkernel.with.a.long.name\nb");
  EXPECT_EQ(wrapped("", 8), "");
}

const std::vector<std::vector<std::string>> kTable = {
    {"kernel", "limits", "what it is"},
    {"cpu.one.chunked", "dk <= 256", "every token of a chunk at once, and the chunks one after the other"},
    {"cpu.another.recurrent", "", "token by token"}};

TEST(Aligned, WithoutAWidthRowsAreAsLongAsTheyAre) {
  EXPECT_EQ(
      aligned(kTable),
      "kernel                 limits     what it is\n"
      "cpu.one.chunked        dk <= 256  every token of a chunk at once, and the chunks one after the other\n"
      "cpu.another.recurrent             token by token\n");
}

TEST(Aligned, TakesTheWidthAndBreaksNoWord) {
  for (const std::size_t width : {60U, 70U, 80U, 100U}) {
    const std::string text = aligned(kTable, width);
    EXPECT_LE(longest_line(text), width) << text;
  }
  EXPECT_EQ(aligned(kTable, 66),
            "kernel                 limits     what it is\n"
            "cpu.one.chunked        dk <= 256  every token of a chunk at once,\n"
            "                                  and the chunks one after the\n"
            "                                  other\n"
            "cpu.another.recurrent             token by token\n");
}

// Where the other columns leave no room the last one stands below.
TEST(Aligned, TheLastColumnGoesBelowWhereThereIsNoRoom) {
  const std::string text = aligned(kTable, 40);
  EXPECT_LE(longest_line(text), 40U) << text;
  EXPECT_NE(text.find("\n    every token of a chunk at once, and\n"), std::string::npos) << text;
  EXPECT_EQ(words_in(text).size(), words_in(aligned(kTable)).size());
}

// Where that is not enough, the columns that do not fit stand below as well, each value after its column's name.
TEST(Aligned, SeveralColumnsGoBelowWithTheirNames) {
  const std::vector<std::vector<std::string>> table = {
      {"kernel", "case", "median", "device", "verdict"},
      {"cpu.one.chunked", "bf16 B1 T64", "1.25 ms", "-", "pass"},
      {"cpu.another.recurrent", "fp32 B1 T64", "2 ms", "1980 MHz (held by power)", "fail"}};
  EXPECT_EQ(aligned(table, 38),
            "kernel                 case\n"
            "cpu.one.chunked        bf16 B1 T64\n"
            "    median: 1.25 ms; verdict: pass\n"
            "cpu.another.recurrent  fp32 B1 T64\n"
            "    median: 2 ms; device: 1980 MHz\n"
            "    (held by power); verdict: fail\n");
  for (std::size_t width = 26; width < 120; ++width) {
    const std::string text = aligned(table, width);
    EXPECT_LE(longest_line(text), width) << text;
    for (const char* word : {"cpu.another.recurrent", "1980", "power)", "verdict", "T64"})
      EXPECT_NE(text.find(word), std::string::npos) << width << "\n" << text;
  }
}

TEST(ColumnsOf, CountsWhatATerminalShows) {
  EXPECT_EQ(columns_of("\033[31;1mfail\033[0m of β, mm"), 13U);
  EXPECT_EQ(columns_of(""), 0U);
}

TEST(Aligned, ManyBytesMayBeOneColumn) { EXPECT_EQ(aligned({{"β", "x"}, {"ab", "y"}}), "β   x\nab  y\n"); }

}  // namespace
}  // namespace samestate

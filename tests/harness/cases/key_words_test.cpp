#include "harness/cases/key_words.h"

#include <gtest/gtest.h>

#include "harness/cases/keys.h"

namespace samestate {
namespace {

// A key without its words would be missing in docs/case-line.md and in `samestate explain`.
TEST(KeyWords, EveryKeyHasSomeInTheOrderOfTheTable) {
  ASSERT_EQ(key_words().size(), keys().size());
  for (std::size_t i = 0; i < keys().size(); ++i) {
    EXPECT_EQ(key_words()[i].name, keys()[i].name);
    EXPECT_FALSE(key_words()[i].takes.empty());
    EXPECT_FALSE(key_words()[i].means.empty());
  }
}

// What a plan puts there is a value that the words name, where they name all.
TEST(KeyWords, NameTheValuesThatPlansPut) {
  for (std::size_t i = 0; i < keys().size(); ++i) {
    const std::string_view takes = key_words()[i].takes;
    if (takes.find("..") != takes.npos || takes.find('`') != takes.npos || keys()[i].name == "scale" ||
        takes.find(',') == takes.npos || takes.find('N') != takes.npos) {
      continue;
    }
    for (const std::string_view value : keys()[i].values)
      EXPECT_NE(takes.find(value), takes.npos) << keys()[i].name << " takes " << takes << ", not " << value;
  }
}

TEST(KeyWords, ThePageHasARowForEachKeyAndSystem) {
  const std::string page = case_line_markdown();
  for (const Key& key : keys())
    EXPECT_NE(page.find("| `" + std::string(key.name) + "` |"), std::string::npos) << key.name;
  EXPECT_NE(page.find("| rms_norm |"), std::string::npos);
}

}  // namespace
}  // namespace samestate

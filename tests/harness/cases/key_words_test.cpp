#include "harness/cases/key_words.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "harness/cases/keys.h"
#include "harness/cases/system.h"

namespace samestate {
namespace {

/// A row of the table of keys, and no size of a system that has its name.
bool key_means_itself(const KeyRow& row) { return std::ranges::count(systems(), row.of, &System::name) == 0; }

// A key without its words would be missing in docs/lookup/case-line.md and in `samestate explain`.
TEST(KeyWords, EveryKeyHasSomeInTheOrderOfTheTable) {
  ASSERT_EQ(key_words().size(), keys().size());
  for (std::size_t i = 0; i < keys().size(); ++i) {
    EXPECT_EQ(key_words()[i].name, keys()[i].name);
    EXPECT_FALSE(key_words()[i].takes.empty());
    EXPECT_FALSE(key_words()[i].means.empty());
  }
}

// The values that a plan uses are among those that the words name, if the words name all.
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

// A program that writes lines goes by these rows: of every system they are its keys, in its order, with its defaults.
TEST(KeyWords, RowsAreTheKeysOfEverySystemInItsOrder) {
  const std::vector<KeyRow> rows = key_rows();
  for (const System* system : systems()) {
    const Case standard = system->standard();
    std::vector<std::string> listed, own;
    for (const KeyRow& row : rows) {
      if (row.of != system->name) {
        if (system->has_key(row.name) && key_means_itself(row)) listed.push_back(row.name);
        continue;
      }
      own.push_back(row.name);
      EXPECT_EQ(row.standard, std::to_string(size_in(standard, row.name))) << system->name << " " << row.name;
    }
    std::vector<std::string> keys(system->keys.begin(), system->keys.end()), sizes;
    for (const CaseSize& size : system->sizes) {
      if (size.own) sizes.emplace_back(size.name);
    }
    EXPECT_EQ(listed, keys) << system->name;
    EXPECT_EQ(own, sizes) << system->name;
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

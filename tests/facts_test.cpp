#include "tests/facts.h"

#include <gtest/gtest.h>

namespace samestate {
namespace {

TEST(Facts, AreThereWhateverTheSentence) {
  EXPECT_EQ(lacking("'k': T is 6 and 'q' has 5", "'k' 6 'q' 5"), "");
  EXPECT_EQ(lacking("'q' has T = 5; of 'k' it is 6.", "'k' 6 'q' 5"), "");
  EXPECT_EQ(lacking("anything", ""), "");
}

TEST(Facts, ThatLackAreNamed) {
  EXPECT_EQ(lacking("'k': T is 6", "'k' 6 'q' 5"), " 'q' 5");
  EXPECT_EQ(lacking("", "--force"), " --force");
  EXPECT_EQ(lacking("shard 1/3\nis missing", "shard missing"), " missing") << "on one line";
  EXPECT_EQ(lacking("a\nshard 1/3 is missing\nb", "shard missing"), "");
}

TEST(Facts, ANumberStandsByItself) {
  for (const char* text : {"12", "21", "v1", "1s", "0.1", "1.5", "T1", "1_2"})
    EXPECT_EQ(lacking(text, "1"), " 1") << text;
  for (const char* text : {"1", "T=1,", "(1)", "[1, 2]", "-1", "1.", "12 and 1"})
    EXPECT_EQ(lacking(text, "1"), "") << text;
  EXPECT_EQ(lacking("at most 1.5.", "1.5"), "");
  EXPECT_EQ(lacking("at most 11.5", "1.5"), " 1.5");
}

}  // namespace
}  // namespace samestate

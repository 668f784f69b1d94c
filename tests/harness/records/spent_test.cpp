#include "harness/records/spent.h"

#include <gtest/gtest.h>

#include <string>

#include "reference/error.h"

namespace samestate {
namespace {

TEST(Spent, ComesBackFromItsTextAndItsNumbers) {
  Spent spent;
  spent.start = 1.5, spent.compile = 0.25, spent.kernel = 1e-6;
  spent.calls = 2, spent.compiled = 3, spent.lost = true;
  EXPECT_EQ(spent_text(spent), "calls=2 compile=0.25 compiled=3 kernel=1e-06 lost=1 start=1.5");
  for (const Spent& back : {parse_spent(spent_text(spent)), spent_of(numbers_of(spent))}) {
    EXPECT_EQ(back.start, spent.start);
    EXPECT_EQ(back.compile, spent.compile);
    EXPECT_EQ(back.kernel, spent.kernel);
    EXPECT_EQ(back.calls, 2);
    EXPECT_EQ(back.compiled, 3);
    EXPECT_TRUE(back.lost);
  }
  EXPECT_EQ(spent_text({}), "");
  EXPECT_TRUE(parse_spent("").none());
}

TEST(Spent, SumsItsParts) {
  Spent a{.start = 1.0, .compile = 2.0, .calls = 1}, b{.waiting = 0.5, .calls = 2, .lost = true};
  a += b;
  EXPECT_EQ(a.seconds(), 3.5);
  EXPECT_EQ(a.calls, 3);
  EXPECT_TRUE(a.lost);
}

TEST(Spent, DamagedTextIsRefused) {
  for (const char* text : {"start", "start=", "start=x", "start=-1", "start=nan", "start=1e300", "stop=1",
                           "start=1,calls=2", "calls=1 "}) {
    const bool good = std::string(text) == "calls=1 ";
    if (good)
      EXPECT_NO_THROW((void)parse_spent(text)) << text;
    else
      EXPECT_THROW((void)parse_spent(text), Error) << text;
  }
}

}  // namespace
}  // namespace samestate

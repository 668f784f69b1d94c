#include "harness/records/hash.h"

#include <gtest/gtest.h>

namespace samestate {
namespace {

TEST(Hash, IsFnv1a) {
  // The values are from the authors' page (Fowler, Noll, Vo): the empty text, "a" and "foobar".
  EXPECT_EQ(hash_of(""), 0xcbf29ce484222325U);
  EXPECT_EQ(hash_of("a"), 0xaf63dc4c8601ec8cU);
  EXPECT_EQ(hash_of("foobar"), 0x85944171f73967e8U);
  EXPECT_EQ(hash_of("bar", hash_of("foo")), hash_of("foobar"));
}

TEST(Hash, OfAPlanSeesOrderAndWhereACaseEnds) {
  const auto of = [](std::initializer_list<std::pair<const char*, const char*>> cases) {
    PlanHash hash;
    for (const auto& [line, kernel] : cases) hash.add(line, kernel);
    return hash.text();
  };
  EXPECT_EQ(of({{"v1 a", "k"}, {"v1 b", "k"}}).size(), 16U);
  EXPECT_NE(of({{"v1 a", "k"}, {"v1 b", "k"}}), of({{"v1 b", "k"}, {"v1 a", "k"}}));
  EXPECT_NE(of({{"v1 a", "k"}}), of({{"v1 a", "l"}}));
  EXPECT_NE(of({{"v1 a", "k"}}), of({{"v1 ak", ""}}));
  EXPECT_NE(of({{"v1 a", "k"}}), of({{"v1 a", "k"}, {"", ""}}));
}

}  // namespace
}  // namespace samestate

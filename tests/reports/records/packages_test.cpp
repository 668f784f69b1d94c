#include "reports/records/packages.h"

#include <gtest/gtest.h>

namespace samestate {
namespace {

TEST(Packages, AreOfTheSubjectOfTheRecord) {
  EXPECT_EQ(
      packages_of("python:a (1) {\"numpy\":\"2\"}, python:b (2) {\"torch\":\"3\"}", " --subject python:b"),
      "torch 3");
  EXPECT_EQ(packages_of("python:a (1) {\"numpy\":\"2\"", " --subject python:a"), "") << "cut off";
}

/// A file has no version but its content.
TEST(Packages, OfAFileAreItsHashToo) {
  EXPECT_EQ(packages_of("python:dir/mine.py:f?system=x (0123456789abcdef) {\"torch\":\"3\"}",
                        " --subject 'python:dir/mine.py:f?system=x'"),
            "torch 3, mine.py 01234567");
  EXPECT_EQ(packages_of("other.so (9876543210abcdef), mine.so (0123456789abcdef)", " --plugin mine.so"),
            "mine.so 01234567");
  EXPECT_EQ(packages_of("python:fla.chunk (0123456789abcdef) {\"fla\":\"1\"}", " --subject python:fla.chunk"),
            "fla 1")
      << "an adapter's package has a version";
}

}  // namespace
}  // namespace samestate

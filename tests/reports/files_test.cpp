#include "reports/files.h"

#include <gtest/gtest.h>

#include "reference/error.h"
#include "tests/reports/records.h"

namespace samestate {
namespace {

class Files : public testing::Folder {};

TEST_F(Files, ReplacesAndLeavesNoPartBehind) {
  const auto file = path("deep/er/report.md");
  write_atomically(file, "one");
  write_atomically(file, std::string("two\0three", 9));
  EXPECT_EQ(testing::slurp(file), std::string("two\0three", 9));
  EXPECT_FALSE(std::filesystem::exists(path("deep/er/report.md.partial")));
}

TEST_F(Files, NamesTheFileItCannotWrite) {
  testing::spit(path("plain"), "a file, not a folder");
  EXPECT_THROW(write_atomically(path("plain/report.md"), "text"), Error);
  std::filesystem::create_directories(path("taken/inside"));
  try {
    write_atomically(path("taken"), "text");
    FAIL() << "a folder was replaced by a file";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("taken"), std::string::npos);
  }
  EXPECT_FALSE(std::filesystem::exists(path("taken.partial")));
}

}  // namespace
}  // namespace samestate

#include "reports/records/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

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

// Renaming would put a file in the place of a pipe or, for the superuser, of /dev/null.
TEST_F(Files, WhatIsNoFileStaysWhatItIs) {
  const std::string pipe = path("pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int end = ::open(pipe.c_str(), O_RDWR | O_NONBLOCK);
  ASSERT_GE(end, 0);
  require_writable(pipe);
  write_atomically(pipe, "text");
  char buffer[8] = {};
  EXPECT_EQ(::read(end, buffer, sizeof buffer), 4);
  ::close(end);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));

  testing::spit(path("target"), "old");
  std::filesystem::create_symlink(path("target"), path("link"));
  require_writable(path("link"));
  write_atomically(path("link"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_EQ(testing::slurp(path("target")), "new");
}

TEST_F(Files, AskedBeforehandItLeavesNothing) {
  require_writable(path("deep/er/report"));
  EXPECT_FALSE(std::filesystem::exists(path("deep"))) << "a command that is refused made a folder";
  std::filesystem::create_directories(path("made"));
  require_writable(path("made/report"));
  EXPECT_TRUE(std::filesystem::is_empty(path("made")));
  EXPECT_THROW(require_writable(path("made")), Error);
  testing::spit(path("plain"), "a file, not a folder");
  EXPECT_THROW(require_writable(path("plain/report")), Error);
  EXPECT_THROW(require_writable(path("plain/deep/report")), Error);
  std::filesystem::create_symlink(path("nowhere"), path("dangling"));
  EXPECT_THROW(require_writable(path("dangling/report")), Error);
  std::filesystem::create_directories(path("locked"));
  std::filesystem::permissions(path("locked"), std::filesystem::perms::owner_read);
  if (::geteuid() != 0) {  // the superuser may write anywhere
    EXPECT_THROW(require_writable(path("locked/deep/report")), Error);
  }
  std::filesystem::permissions(path("locked"), std::filesystem::perms::owner_all);
}

}  // namespace
}  // namespace samestate

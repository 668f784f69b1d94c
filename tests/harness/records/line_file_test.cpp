#include "harness/records/line_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

#include "reference/error.h"
#include "tests/facts.h"

namespace samestate {
namespace {

namespace fs = std::filesystem;

std::string error_of(LineFile& file, const std::string& line) {
  try {
    file.append(line);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// While it lives, no file of this process grows beyond a number of bytes.
class LimitedFiles {
 public:
  explicit LimitedFiles(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  ~LimitedFiles() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  LimitedFiles(const LimitedFiles&) = delete;
  LimitedFiles& operator=(const LimitedFiles&) = delete;

 private:
  rlimit before_{};
};

TEST(LineFile, TakesBackWhatDoesNotFit) {
  let_full_files_fail();
  const fs::path path = fs::temp_directory_path() / ("samestate_lines_" + std::to_string(::getpid()));
  LineFile file(path, ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
  file.append("one\n");
  file.append("two\n");
  {
    // Room for half of the third line: the kernel writes that half, and then refuses.
    const LimitedFiles limit(14);
    const std::string error = error_of(file, "the third line\n");
    EXPECT_NE(error.find(path.string()), std::string::npos) << error;
    EXPECT_NE(error.find("File too large"), std::string::npos) << error;
    EXPECT_EQ(fs::file_size(path), 8U);
  }
  file.append("three\n");
  std::ifstream in(path, std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "one\ntwo\nthree\n");
  fs::remove(path);
}

// A kernel that finds the name of the judge's record can write there as its user can.
TEST(LineFile, FindsWhatAnotherDidToTheFile) {
  const fs::path path = fs::temp_directory_path() / ("samestate_changed_" + std::to_string(::getpid()));
  const auto opened = [&] {
    LineFile file(path, ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
    file.append("one\n");
    file.append("two\n");
    return file;
  };
  EXPECT_NO_THROW(opened().check());
  LineFile cut = opened();
  std::ofstream(path, std::ios::trunc) << "forged";
  EXPECT_THROW(cut.check(), Error);
  EXPECT_EQ(lacking(error_of(cut, "three\n"), "6 8"), "");
  LineFile replaced = opened();
  const fs::path other = path.string() + ".other";
  std::ofstream(other) << "forged!\n";
  fs::rename(other, path);
  EXPECT_EQ(error_of(replaced, "three\n"), "") << "the old file is still there for who holds it";
  EXPECT_THROW(replaced.check(), Error);
  LineFile removed = opened();
  fs::remove(path);
  EXPECT_THROW(removed.check(), Error);
}

TEST(LineFile, NamesAFullDevice) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  LineFile file("/dev/full", ::open("/dev/full", O_WRONLY | O_CLOEXEC));
  EXPECT_EQ(lacking(error_of(file, "line\n"), "/dev/full space"), "");
  LineFile closed("gone", -1);
  EXPECT_NE(error_of(closed, "line\n").find("gone: cannot be written"), std::string::npos);
}

}  // namespace
}  // namespace samestate

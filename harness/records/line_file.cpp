#include "harness/records/line_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "reference/error.h"

namespace samestate {

LineFile::~LineFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void LineFile::append(std::string_view line) {
  struct stat before {};
  const bool regular = ::fstat(descriptor_, &before) == 0 && S_ISREG(before.st_mode);
  for (std::string_view rest = line; !rest.empty();) {
    const ssize_t n = ::write(descriptor_, rest.data(), rest.size());
    if (n > 0) {
      rest.remove_prefix(static_cast<std::size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    const int reason = n < 0 ? errno : ENOSPC;
    // What did not fit leaves no part: nobody reads half a line as the end of a run that was killed.
    [[maybe_unused]] const int taken = regular ? ::ftruncate(descriptor_, before.st_size) : 0;
    throw Error(fmt::format("{}: cannot be written ({}); free space or name another file", path_.string(),
                            std::strerror(reason)));
  }
}

void LineFile::sync() const { (void)::fsync(descriptor_); }

void let_full_files_fail() { std::signal(SIGXFSZ, SIG_IGN); }

}  // namespace samestate

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

namespace {

/// Returns true if the name leads to a descriptor of another program, which may write there too.
bool is_shared(const std::filesystem::path& path) {
  return path.string().starts_with("/dev/") || path.string().starts_with("/proc/");
}

}  // namespace

void LineFile::append(std::string_view line) {
  struct stat before {};
  const bool regular = ::fstat(descriptor_, &before) == 0 && S_ISREG(before.st_mode);
  if (regular && size_ >= 0 && before.st_size != size_ && !is_shared(path_))
    throw Error(fmt::format(
        "{}: has {} bytes, but {} were written to it: something else changed it, perhaps a kernel; keep it "
        "where only the judge writes",
        path_.string(), before.st_size, size_));
  for (std::string_view rest = line; !rest.empty();) {
    const ssize_t n = ::write(descriptor_, rest.data(), rest.size());
    if (n > 0) {
      rest.remove_prefix(static_cast<std::size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    const int reason = n < 0 ? errno : ENOSPC;
    // A line that did not fit is removed completely, so that half a line is never read as the end of a run
    // that was killed.
    [[maybe_unused]] const int taken = regular ? ::ftruncate(descriptor_, before.st_size) : 0;
    throw Error(fmt::format("{}: cannot be written ({}); free space or name another file", path_.string(),
                            std::strerror(reason)));
  }
  if (regular) size_ = before.st_size + static_cast<std::int64_t>(line.size());
}

void LineFile::check() const {
  if (size_ < 0 || is_shared(path_)) return;
  struct stat own {};
  struct stat there {};
  const bool same = ::fstat(descriptor_, &own) == 0 && ::stat(path_.c_str(), &there) == 0 &&
                    own.st_dev == there.st_dev && own.st_ino == there.st_ino;
  if (same && there.st_size == size_) return;
  throw Error(fmt::format(
      "{}: {} what was written to it, {} bytes: something else replaced or changed it, a kernel perhaps; "
      "keep "
      "it where only the judge writes",
      path_.string(), same ? fmt::format("holds {} bytes and not", there.st_size) : "is another file than",
      size_));
}

void LineFile::sync() const { (void)::fsync(descriptor_); }

void let_full_files_fail() { std::signal(SIGXFSZ, SIG_IGN); }

}  // namespace samestate

#include "harness/records/fresh_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <utility>

#include "reference/error.h"

namespace samestate {

FreshFile::FreshFile(std::filesystem::path target) : target_(std::move(target)) {
  constexpr int kMostTries = 100;
  constexpr mode_t kPermissions = 0666;  // the user's mask may remove some of them
  std::random_device random;
  for (int i = 0; i < kMostTries; ++i) {
    // The name is short, however long the target's own name is.
    const std::uint64_t number = std::uint64_t{random()} << 32U | random();
    path_ = target_.parent_path() / fmt::format(".samestate-{:016x}", number);
    descriptor_ =
        ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, kPermissions);
    if (descriptor_ >= 0 || errno != EEXIST) break;
  }
  if (descriptor_ < 0)
    throw Error(fmt::format("{}: no file can be created next to it ({}); free space or name another file",
                            target_.string(), std::strerror(errno)));
}

FreshFile::~FreshFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(path_.c_str());
}

void FreshFile::append(std::string_view text) {
  const std::size_t size = text.size();
  while (!text.empty()) {
    const ssize_t n = ::write(descriptor_, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      throw Error(fmt::format("{}: cannot write {} bytes ({}); free space or name another file",
                              target_.string(), size, std::strerror(n < 0 ? errno : ENOSPC)));
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

void FreshFile::put_in_place() {
  // A file system that cannot sync answers EINVAL; nothing is lost by ignoring it.
  if (::fsync(descriptor_) != 0 && errno != EINVAL && errno != ENOSYS)
    throw Error(fmt::format("{}: cannot be synced ({}); free space or name another file", target_.string(),
                            std::strerror(errno)));
  if (std::rename(path_.c_str(), target_.c_str()) != 0)
    throw Error(fmt::format("{}: cannot be replaced ({}); name another file", target_.string(),
                            std::strerror(errno)));
  ::close(std::exchange(descriptor_, -1));
  const std::filesystem::path folder = std::filesystem::absolute(target_).parent_path();
  // The file is in its place: if its folder cannot be opened or synced, that does not undo it.
  if (const int opened = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); opened >= 0) {
    ::fsync(opened);
    ::close(opened);
  }
}

}  // namespace samestate

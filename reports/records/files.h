#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace samestate {

/// A whole file; nothing where it cannot be read.
[[nodiscard]] std::optional<std::string> text_of(const std::filesystem::path& path);

/// Replaces the file `path` by `text`: written beside it under a fresh name, synced, then renamed (FreshFile), so that a reader
/// sees the old file or the new one and never a part. A symbolic link stays, and the file that it names is
/// replaced; what is no file (a pipe, /dev/stdout, /dev/null) is written to and stays what it is. Makes
/// missing parent folders. Throws Error when the file cannot be written; the old file is then untouched.
void write_atomically(const std::filesystem::path& path, std::string_view text);

/// Throws Error if write_atomically would: better before a long run than after it. Leaves nothing behind, no folder either.
void require_writable(const std::filesystem::path& path);

/// Makes the folder that will hold `path`. Throws Error when it cannot.
void make_parent_folder(const std::filesystem::path& path);

/// One writer at a time of a file of records: lines of two would run into each other. Held until destroyed; a
/// process that dies holds none. Devices and pipes need none.
class FileLock {
 public:
  FileLock() = default;
  /// Makes the file where there is none. Throws Error when another process holds the lock.
  explicit FileLock(const std::filesystem::path& path);
  ~FileLock();
  FileLock(FileLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileLock& operator=(FileLock&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

 private:
  int descriptor_ = -1;
};

}  // namespace samestate

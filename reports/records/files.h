#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace samestate {

/// The whole content of a file; nullopt if it cannot be read.
[[nodiscard]] std::optional<std::string> text_of(const std::filesystem::path& path);

/// Replaces the file `path` by `text`. The text is written next to it under a new name, synced, and then
/// renamed (FreshFile), so that a reader sees the old file or the new one but never a part. A symbolic link
/// is kept, and the file that it points to is replaced; anything that is not a regular file (a pipe,
/// /dev/stdout, /dev/null) is written to and kept. Creates missing parent folders. Throws Error if the file
/// cannot be written; the old file is then unchanged.
void write_atomically(const std::filesystem::path& path, std::string_view text);

/// Throws Error if write_atomically would, so that this is known before a long run and not after it. Leaves
/// nothing behind, not even a folder.
void require_writable(const std::filesystem::path& path);

/// Creates the folder that will contain `path`. Throws Error if that is not possible.
void make_parent_folder(const std::filesystem::path& path);

/// Makes sure that a file of records has one writer at a time, because lines of two would mix. Held until
/// destroyed; a process that dies releases it. Devices and pipes need no lock.
class FileLock {
 public:
  FileLock() = default;
  /// Creates the file if it does not exist. Throws Error if another process holds the lock.
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

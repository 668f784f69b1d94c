#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>

namespace samestate {

/// A file to which whole lines are appended, each with a single write if the system accepts it in one piece.
/// A line that does not fit (a full disk, a lost file system, a limit on file sizes) is removed again, so the
/// file stays valid and can be read, merged and continued.
class LineFile {
 public:
  LineFile() = default;
  /// Takes over `descriptor`, open for appending; `path` is used in error messages.
  LineFile(std::filesystem::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  ~LineFile();
  LineFile(LineFile&& other) noexcept
      : path_(std::move(other.path_)),
        descriptor_(std::exchange(other.descriptor_, -1)),
        size_(other.size_) {}
  LineFile& operator=(LineFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    std::swap(size_, other.size_);
    return *this;
  }

  [[nodiscard]] int descriptor() const { return descriptor_; }

  /// Appends `line` and a newline. Throws Error that names file and reason, also if the file does not have
  /// the length that was written.
  void append(std::string_view line);

  /// Throws Error if the path does not lead to what was written here: the file was truncated, modified,
  /// replaced or removed.
  void check() const;

  /// After this call the appended lines survive a power failure, if the file system supports that.
  void sync() const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t size_ = -1;  ///< the size after the last appended line; -1 if there is none
};

/// Makes a write beyond the limit on file sizes (ulimit -f) fail like one on a full disk, instead of ending
/// the process. Call it once, before anything is written.
void let_full_files_fail();

}  // namespace samestate

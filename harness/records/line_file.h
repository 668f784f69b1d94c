#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>

namespace samestate {

/// A file to which whole lines are appended, each with one write where the system takes it whole. A line that does not
/// fit (a full disk, a lost file system, a limit on the size of files) is taken back, so that what was there stays whole
/// and can be read, merged and gone on with.
class LineFile {
 public:
  LineFile() = default;
  /// Takes over `descriptor`, open for appending; `path` is what errors name.
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

  /// `line` with its end. Throws Error that names file and reason, also where the file is not as long as what was written.
  void append(std::string_view line);

  /// Throws Error where the name does not lead to what was written here: somebody cut, wrote to, replaced or removed the file.
  void check() const;

  /// What was appended outlives a loss of power from here on, where the file system can do that.
  void sync() const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t size_ = -1;  ///< behind the last line that was appended; -1: none was
};

/// Lets a write beyond a limit on the size of files (ulimit -f) fail as one on a full disk does, instead of ending the
/// process: once, before anything is written.
void let_full_files_fail();

}  // namespace samestate

#pragma once

#include <filesystem>
#include <string_view>

namespace samestate {

/// A file that is written under an unused name next to `target` and takes its place when it is complete: a
/// reader sees the old file or the new one, even after a power failure. No existing file is opened, followed
/// or deleted, whatever its name. If the file is not put in place, it is removed.
class FreshFile {
 public:
  /// Throws Error that names `target` if its folder does not accept files.
  explicit FreshFile(std::filesystem::path target);
  ~FreshFile();
  FreshFile(const FreshFile&) = delete;
  FreshFile& operator=(const FreshFile&) = delete;

  /// The path of the file while it is being written.
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Open for appending.
  [[nodiscard]] int descriptor() const { return descriptor_; }

  /// Throws Error that names `target` if the text does not fit.
  void append(std::string_view text);
  /// Syncs the file, renames it to `target` and syncs the folder. Throws Error; the old file is then
  /// unchanged.
  void put_in_place();

 private:
  std::filesystem::path target_, path_;
  int descriptor_ = -1;
};

}  // namespace samestate

#pragma once

#include <filesystem>
#include <string_view>

namespace samestate {

/// A file that is made beside `target` under a name that nobody has, and takes its place once it is whole: a reader sees the
/// old file or the new one, also after the machine lost its power. No file that was there is opened, followed or deleted on
/// the way, whatever its name. Where it is not put in place it is removed.
class FreshFile {
 public:
  /// Throws Error, that names `target`, where its folder takes no file.
  explicit FreshFile(std::filesystem::path target);
  ~FreshFile();
  FreshFile(const FreshFile&) = delete;
  FreshFile& operator=(const FreshFile&) = delete;

  /// Of the file while it is made.
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Open for writing at its end.
  [[nodiscard]] int descriptor() const { return descriptor_; }

  /// Throws Error, that names `target`, where it does not fit.
  void append(std::string_view text);
  /// Syncs the file, renames it to `target` and syncs the folder. Throws Error; the old file is then untouched.
  void put_in_place();

 private:
  std::filesystem::path target_, path_;
  int descriptor_ = -1;
};

}  // namespace samestate

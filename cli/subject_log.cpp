#include "cli/subject_log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "cli/table.h"

namespace samestate::cli {
namespace {

constexpr const char* kVariable = "SAMESTATE_SUBJECT_LOG";

std::uintmax_t size_of(const std::string& path) {
  std::error_code none;
  const std::uintmax_t size = std::filesystem::file_size(path, none);
  return none ? 0 : size;
}

}  // namespace

SubjectLog::SubjectLog(const std::vector<std::string>& plugins) {
  if (std::ranges::none_of(plugins, is_subject)) return;
  if (const char* given = std::getenv(kVariable); given != nullptr) {
    path_ = given;
    return;
  }
  std::error_code none;
  std::string path = (std::filesystem::temp_directory_path(none) / "samestate-XXXXXX.log").string();
  const int file = ::mkstemps(path.data(), static_cast<int>(std::string_view(".log").size()));
  if (file < 0) return;
  ::close(file);
  ::setenv(kVariable, path.c_str(), 1);
  path_ = std::move(path), own_ = true;
}

SubjectLog::~SubjectLog() {
  if (!own_) return;
  ::unsetenv(kVariable);
  if (size_of(path_) == 0) ::unlink(path_.c_str());
}

std::string SubjectLog::text() const {
  const std::uintmax_t size = path_.empty() ? 0 : size_of(path_);
  return size == 0 ? "" : fmt::format("what the subject printed: {} ({} kB)", path_, (size + 1023) / 1024);
}

}  // namespace samestate::cli

#include "reports/records/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <system_error>

#include "harness/records/fresh_file.h"
#include "reference/error.h"

namespace samestate {

std::optional<std::string> text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return std::nullopt;
  return std::move(text).str();
}

void make_parent_folder(const std::filesystem::path& path) {
  const std::filesystem::path parent = path.parent_path();
  if (parent.empty()) return;
  std::error_code code;
  std::filesystem::create_directories(parent, code);
  if (code) {
    throw Error(fmt::format("{}: cannot make the folder ({}); name a folder that can be written",
                            parent.string(), code.message()));
  }
}

FileLock::FileLock(const std::filesystem::path& path) {
  std::error_code code;
  const bool there = std::filesystem::exists(path, code);
  if (there && !std::filesystem::is_regular_file(path, code)) return;
  constexpr mode_t kPermissions = 0666;
  // If it cannot be opened, the later write reports that; a file system without locks grants none.
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, kPermissions);
  if (descriptor_ < 0 || ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(descriptor_);
  throw Error(
      fmt::format("{}: another process is writing to it; wait for it, or name another file", path.string()));
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

namespace {

namespace fs = std::filesystem;

/// Returns true if `path` exists and is not a regular file: renaming onto it would replace it by one, for the
/// superuser even /dev/null.
bool is_special(const fs::path& path) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  return fs::exists(status) && !fs::is_regular_file(status);
}

void write_all(const fs::path& file, std::string_view text) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  out.close();
  if (!out) {
    throw Error(fmt::format("{}: cannot write {} bytes; free space or name another file", file.string(),
                            text.size()));
  }
}

bool is_there(const fs::path& path) {
  std::error_code code;
  return fs::exists(path, code);
}

/// Throws Error if make_parent_folder would, and for a folder that does not exist yet, before it is made.
void require_parent_folder(const fs::path& path) {
  const fs::path parent = fs::absolute(path).parent_path();
  fs::path there = parent;
  std::error_code code;
  while (there.has_relative_path() && !fs::exists(fs::symlink_status(there, code)))
    there = there.parent_path();
  const bool folder = fs::is_directory(there, code);
  if (folder && ::access(there.c_str(), W_OK | X_OK) == 0) return;
  throw Error(fmt::format("{}: cannot make the folder ({}); name a folder that can be written",
                          parent.string(), folder ? std::strerror(errno) : there.string() + " is none"));
}

/// Returns the file that `path` names, at the end of symbolic links; `path` itself if there is none yet.
fs::path resolved(const fs::path& path) {
  std::error_code code;
  if (!fs::is_symlink(path, code)) return path;
  const fs::path target = fs::weakly_canonical(path, code);
  return code ? path : target;
}

}  // namespace

void write_atomically(const fs::path& path, std::string_view text) {
  if (fs::is_directory(path)) throw Error(path.string() + ": is a folder; name a file in it");
  if (is_special(path)) return write_all(path, text);
  make_parent_folder(path);
  FreshFile file(resolved(path));
  file.append(text);
  file.put_in_place();
}

void require_writable(const fs::path& path) {
  if (fs::is_directory(path)) throw Error(path.string() + ": is a folder; name a file in it");
  if (is_special(path)) {
    if (!std::ofstream(path, std::ios::binary | std::ios::app)) {
      throw Error(path.string() + ": cannot be written; name another file");
    }
    return;
  }
  // A refused path leaves nothing behind, not even a folder.
  if (const fs::path parent = path.parent_path(); !parent.empty() && !is_there(parent))
    return require_parent_folder(path);
  const FreshFile trial(resolved(path));
}

}  // namespace samestate

#include "reports/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <system_error>

#include "reference/error.h"

namespace samestate {

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
  constexpr mode_t permissions = 0666;
  // What cannot be opened is told by whoever writes; a file system without locks has none to give.
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, permissions);
  if (descriptor_ < 0 || ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(descriptor_);
  throw Error(
      fmt::format("{}: another process is writing to it; wait for it, or name another file", path.string()));
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void write_atomically(const std::filesystem::path& path, std::string_view text) {
  make_parent_folder(path);
  std::filesystem::path partial = path;
  partial += ".partial";
  std::error_code code;
  {
    std::ofstream file(partial, std::ios::binary | std::ios::trunc);
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    file.close();
    if (!file) {
      std::filesystem::remove(partial, code);
      throw Error(fmt::format("{}: cannot write {} bytes; free space or name another file", path.string(),
                              text.size()));
    }
  }
  std::filesystem::rename(partial, path, code);
  if (code) {
    const std::string reason = code.message();
    std::filesystem::remove(partial, code);
    throw Error(fmt::format("{}: cannot be replaced ({}); name another file", path.string(), reason));
  }
}

}  // namespace samestate

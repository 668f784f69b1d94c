#include "reports/files.h"

#include <fmt/format.h>

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

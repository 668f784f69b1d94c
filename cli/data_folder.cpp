#include "cli/data_folder.h"

#include <filesystem>
#include <system_error>

namespace samestate::cli {

std::string data_folder(const std::string& name) {
  std::error_code code;
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe", code);
  return (here.parent_path().parent_path() / "share/samestate" / name).string();
}

}  // namespace samestate::cli

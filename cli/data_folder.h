#pragma once

#include <string>

namespace samestate::cli {

/// Returns the path of data that come with the command: "corpus", "evidence" or "golden" in share/samestate
/// next to the folder of the command, wherever that was moved to. The path need not exist.
[[nodiscard]] std::string data_folder(const std::string& name);

}  // namespace samestate::cli

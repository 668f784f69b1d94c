#pragma once

#include <string>

namespace samestate::cli {

/// The path of data that the command carries: "corpus", "evidence" or "golden" in share/samestate beside the
/// folder of the command, wherever that was moved to. The path need not exist.
[[nodiscard]] std::string data_folder(const std::string& name);

}  // namespace samestate::cli

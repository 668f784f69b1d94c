#pragma once

#include <string>

namespace samestate::cli {

/// What the command carries: "corpus", "evidence" or "golden" in share/samestate beside the folder that it lies in, wherever
/// that was moved to. It need not be there.
[[nodiscard]] std::string data_folder(const std::string& name);

}  // namespace samestate::cli
